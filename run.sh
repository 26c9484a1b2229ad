#!/usr/bin/env bash
# Installs what is missing, builds and serves: by default the demo model on two local ranks.
#   ./run.sh [flags of `shoal serve`]
set -eu
root=$(cd "$(dirname "$0")" && pwd)
(cd "$root" && tools/setup.sh && make -s -j"$(getconf _NPROCESSORS_ONLN)")
exec "$root/build/shoal" serve "$@" # from the caller's folder: relative paths refer to it
