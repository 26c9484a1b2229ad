#!/usr/bin/env bash
# Markdown, code and formulas of the chat, in Chromium.
. "$(dirname "$0")/../tap.sh"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
npm_dir=$root/build/npm
quit() { skip "what a model writes is drawn in a browser" "$1"; done_testing; }
why=$(npm_packages) || quit "$why"
[ -n "$chromium" ] || quit "chromium is missing"
export CHROMIUM=$chromium NODE_PATH=$npm_dir/node_modules SHOAL=${SHOAL_BUILD:-$root/build/release}/shoal
exec node "$root/tests/browser/markup.cjs"
