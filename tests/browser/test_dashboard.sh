#!/usr/bin/env bash
# The dashboard in Chromium, with the demo model on two ranks. Also takes the pictures in docs/ when SHOAL_SCREENSHOTS
# is set to a folder.
. "$(dirname "$0")/../tap.sh"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
npm_dir=$root/build/npm
quit() { skip "the dashboard works in a browser" "$1"; done_testing; }
why=$(npm_packages) || quit "$why"
[ -n "$chromium" ] || quit "chromium is missing"
export CHROMIUM=$chromium NODE_PATH=$npm_dir/node_modules SHOAL=${SHOAL_BUILD:-$root/build/release}/shoal
exec node "$root/tests/browser/dashboard.cjs"
