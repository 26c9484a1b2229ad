#!/usr/bin/env bash
# The dashboard in Chromium, with an API that is made up: groups and states that one machine does not have.
. "$(dirname "$0")/../tap.sh"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
npm_dir=$root/build/npm
quit() { skip "the live pages work in a browser" "$1"; done_testing; }
why=$(npm_packages) || quit "$why"
[ -n "$chromium" ] || quit "chromium is missing"
export CHROMIUM=$chromium NODE_PATH=$npm_dir/node_modules
exec node "$root/tests/browser/live.cjs"
