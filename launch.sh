#!/usr/bin/env bash
# Controls a cluster; all settings come from the environment and from .env (HOSTFILE, MODEL_DIR, API_PORT, ...).
#   ./launch.sh start [flags of `shoal launch`]   build if necessary, stop what runs, then launch in the background
#   ./launch.sh start --detect [flags]            first do what `detect` does
#   ./launch.sh stop | restart | status           the same as `shoal stop`, `shoal restart`, `shoal status`
#   ./launch.sh test                              send one question to the API
#   ./launch.sh detect [HOST ...]                 query the machines, time every pair, write hosts.json
# `start` uses hosts.json beside this script unless HOSTFILE or WORKER_HOSTS is set. server.log and api.log lead to the
# log of the ranks and to that of the HTTP requests; the latter only if rank 0 is this machine.
set -eu
cd "$(dirname "$0")"
verb=${1:-}; [ $# -gt 0 ] && shift
build() { tools/setup.sh && make -s -j"$(getconf _NPROCESSORS_ONLN)" program; }
shoal() { [ -x build/shoal ] || build; build/shoal "$@"; }
setting() { sed -n "s/^$1 = \(.*\)  # .*/\1/p" <<<"$config"; }

detect() { # [HOST ...]: writes the hostfile of the settings, or hosts.json
    local config
    config=$(shoal hosts --print-config)
    hostfile=$(setting hostfile); hostfile=${hostfile:-hosts.json}
    shoal hosts detect --out "$hostfile" "$@"
}

start() {
    build
    local config state flags=()
    if [ "${1:-}" = --detect ]; then
        shift
        detect
        set -- --hostfile "$hostfile" "$@"
    fi
    config=$(shoal launch "$@" --print-config)
    if [ -z "$(setting hostfile)$(setting workers)" ] && [ -e hosts.json ]; then
        echo "the hosts of hosts.json"
        flags+=(--hostfile hosts.json)
    fi
    state=$(setting state-dir); state=${state/#\~/$HOME}
    ln -sfn "$state/launch.log" server.log
    if [ -z "$(setting access-log)" ]; then
        local folder; folder=$(setting cwd) # of the ranks
        ln -sfn "${folder:-$state}/api.log" api.log
        flags+=(--access-log api.log)
    fi
    shoal stop --state-dir "$state"
    shoal launch --detach "${flags[@]}" "$@"
}

case $verb in
start) start "$@" ;;
stop | restart | status) shoal "$verb" "$@" ;;
test)
    shoal call /v1/chat/completions \
        '{"messages": [{"role": "user", "content": "What is tensor parallelism?"}], "max_tokens": 64}' "$@"
    ;;
detect) detect "$@" ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
