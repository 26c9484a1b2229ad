# Helpers for the tests of the API: start and stop `shoal api`, with or without an engine, and raw requests.
. "$(dirname "${BASH_SOURCE[0]}")/../tap.sh"
shoal=${SHOAL_BUILD:-$root/build/release}/shoal
work=$(mktemp -d /tmp/shoal-api-XXXXXX)
cd "$work" || exit 1
pids=()
trap 'for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done; rm -rf "$work"' EXIT

# serve_api NAME FLAGS...: starts an API; sets $port and $api_pid. Its log is NAME.log.
serve_api() {
    local name=$1; shift
    : >"$name.log"
    "$shoal" api --socket "$work/engine.sock" --port 0 --allowed-hosts a "$@" 2>"$name.log" &
    api_pid=$!; pids+=("$api_pid")
    for _ in $(seq 200); do
        port=$(sed -nE 's/.*listening on https?:.*:([0-9]+)$/\1/p' "$name.log")
        [ -n "$port" ] && return 0
        kill -0 "$api_pid" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

stop() { # pid: asks it to stop and returns its exit code
    kill -TERM "$1" 2>/dev/null; wait "$1"
}

serve_engine() { # FLAGS...: the demo model at the socket; sets $engine_pid
    "$shoal" engine --model "$root/models/demo" --socket "$work/engine.sock" "$@" 2>engine.log &
    engine_pid=$!; pids+=("$engine_pid")
}

await() { # path status: polls until the status is that, for 60 s at most
    for _ in $(seq 600); do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port$1")" = "$2" ] && return 0
        sleep 0.1
    done
    return 1
}

# raw SECONDS TEXT...: sends texts (printf escapes) with pauses in between and prints the response until the server
# closes the connection or the time is up.
raw() {
    local limit=$1; shift
    exec 9<>"/dev/tcp/127.0.0.1/$port" || return 1
    (for text in "$@"; do printf '%b' "$text"; sleep 0.2; done) >&9 2>/dev/null &
    timeout "$limit" cat <&9
    local rc=$?
    wait $! 2>/dev/null
    exec 9<&- 9>&-
    return $rc
}

url() { echo "http://127.0.0.1:$port$1"; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
status_of() { curl -s -o body -D head -w '%{http_code}' "$@"; }
is() { [ "$1" = "$2" ] || { echo "got '$1', not '$2'"; head -c 600 body 2>/dev/null; return 1; }; }
has() { grep -qiE -- "$2" "$1" || { echo "no '$2' in $1:"; head -c 1000 "$1"; return 1; }; }
# gets STATUS PATH [flags of curl]: the response has that status; it is in ./body and ./head.
gets() { is "$(status_of "${@:3}" "$(url "$2")")" "$1"; }
# LOG...; a sanitizer build says that it has no sandbox
no_complaint() { ! grep -hv "sandbox: none" "$@" | grep -iE "assert|sanitizer|runtime error|leak"; }
