#!/usr/bin/env bash
# Controls a cluster; all settings come from the environment and from .env (HOSTFILE, MODEL_DIR, API_PORT, ...).
#   ./launch.sh start [flags of `shoal launch`]   build if necessary, then launch in the background
#   ./launch.sh stop | restart | status           the same as `shoal stop`, `shoal restart`, `shoal status`
#   ./launch.sh test                              send one question to the API
#   ./launch.sh detect [HOST ...]                 query the machines, time every pair, write hosts.json
set -eu
cd "$(dirname "$0")"
verb=${1:-}; [ $# -gt 0 ] && shift
build() { tools/setup.sh && make -s -j"$(getconf _NPROCESSORS_ONLN)" program; }
shoal() { [ -x build/shoal ] || build; build/shoal "$@"; }

case $verb in
start) build && shoal launch --detach "$@" ;;
stop | restart | status) shoal "$verb" "$@" ;;
test)
    shoal call /v1/chat/completions \
        '{"messages": [{"role": "user", "content": "What is tensor parallelism?"}], "max_tokens": 64}' "$@"
    ;;
detect) shoal hosts detect --out "${HOSTFILE:-hosts.json}" "$@" && echo "wrote ${HOSTFILE:-hosts.json}" ;;
*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
