#!/usr/bin/env bash
# Installs the packages of tests/npm/package.json into build/npm, unless they are already there. If that fails, the
# reason is written to build/npm/.why, and each test that needs them skips at once (npm_packages in tap.sh).
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build/npm
[ -e build/npm/.done ] && cmp -s tests/npm/package.json build/npm/package.json && exit 0
rm -f build/npm/.done
folder=$PWD/build/npm
fail() { echo "$1" >"$folder/.why"; echo "npm: $1" >&2; exit 1; }
command -v node >/dev/null || fail "node is missing"
command -v npm >/dev/null || fail "npm is missing"
cp tests/npm/package.json build/npm/ && cd build/npm || exit 1

# npm silently retries for minutes whatever the error, so first check with one small query that the registry answers.
quick=(--fetch-retries=0 --fetch-timeout=10000 --loglevel=error)
said=$(timeout 20 npm view zod version "${quick[@]}" 2>&1) || fail "the registry cannot be reached: \
$(grep -m 1 -E 'network|request to|code' <<<"$said" || echo "no answer in 20 s")"
said=$(timeout 200 npm install --ignore-scripts --no-audit --no-fund --no-package-lock --fetch-retries=1 \
    --fetch-timeout=60000 --loglevel=error 2>&1) || fail "the packages cannot be installed: $(tail -n 1 <<<"$said")"
rm -f .why
touch .done
