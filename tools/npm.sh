#!/usr/bin/env bash
# Installs the packages of tests/npm/package.json into build/npm; does nothing when they are there already.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/npm
[ -e build/npm/.done ] && cmp -s tests/npm/package.json build/npm/package.json && exit 0
command -v npm >/dev/null || { echo "npm is missing"; exit 1; }
rm -f build/npm/.done
cp tests/npm/package.json build/npm/
cd build/npm
timeout 300 npm install --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error >/dev/null
touch .done
