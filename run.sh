#!/usr/bin/env bash
# Sets up, builds and serves: the demo model on two local ranks, unless told otherwise.
#   ./run.sh [flags of `shoal serve`]
set -eu
cd "$(dirname "$0")"
tools/setup.sh
make -s -j"$(getconf _NPROCESSORS_ONLN)"
exec build/shoal serve "$@"
