#!/usr/bin/env bash
# The dashboard in Chromium, in front of the demo model on two ranks. Also makes the pictures in docs/ when
# SHOAL_SCREENSHOTS is set to a folder.
. "$(dirname "$0")/../tap.sh"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
npm_dir=$root/build/npm-browser
quit() { skip "the dashboard works in a browser" "$1"; done_testing; }
command -v node >/dev/null || quit "node is missing"
[ -n "$chromium" ] || quit "chromium is missing"
if [ ! -d "$npm_dir/node_modules/playwright-core" ]; then
    mkdir -p "$npm_dir" && cp "$root/tests/browser/package.json" "$npm_dir/"
    (cd "$npm_dir" && timeout 120 npm install --ignore-scripts --no-audit --no-fund >npm.log 2>&1) ||
        quit "npm can not get playwright-core"
fi
export CHROMIUM=$chromium NODE_PATH=$npm_dir/node_modules SHOAL=${SHOAL_BUILD:-$root/build/release}/shoal
exec node "$root/tests/browser/dashboard.cjs"
