#!/usr/bin/env bash
# A cluster in one word; all settings come from the environment and from .env (HOSTFILE, MODEL_DIR, API_PORT, ...).
#   ./launch.sh start [flags of `shoal launch`]   build if need be, then launch in the background
#   ./launch.sh stop | restart | status           what `shoal` says and does
#   ./launch.sh test                              one question to the API
#   ./launch.sh detect [HOST ...]                 ask the machines, time every pair, write hosts.json
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
