#!/usr/bin/env bash
# Sets up, builds and serves: the demo model on two local ranks, unless told otherwise.
#   ./run.sh [flags of `shoal serve`]
set -eu
root=$(cd "$(dirname "$0")" && pwd)
(cd "$root" && tools/setup.sh && make -s -j"$(getconf _NPROCESSORS_ONLN)")
exec "$root/build/shoal" serve "$@" # where the user stands: paths are meant from there
