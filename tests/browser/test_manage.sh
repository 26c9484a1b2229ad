#!/usr/bin/env bash
# The dashboard's controls in Chromium: hosts, restart, drain, models that are loaded and downloaded. With
# SHOAL_SCREENSHOTS set to a folder, it also takes pictures.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/../store/lib.sh"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
quit() { skip "the dashboard changes the cluster and the models" "$1"; done_testing; }
why=$(npm_packages) || quit "$why"
[ -n "$chromium" ] || quit "chromium is missing"
command -v python3 >/dev/null || quit "python3 is missing"
scratch
hub_start
mkdir models && cp -r "$root/models/demo" models/first && cp -r "$root/models/demo" models/second
export CHROMIUM=$chromium NODE_PATH=$root/build/npm/node_modules SHOAL=$shoal WORK=$work
unset "${!SHOAL_MODEL@}" SHOAL_BUILD
node "$root/tests/browser/manage.cjs"
