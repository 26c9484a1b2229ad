#!/usr/bin/env bash
# `shoal monitor` beside a real server that goes away and comes back, and a model that is served by its name in the cache.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'kill $server $live 2>/dev/null; wait 2>/dev/null; cd /; rm -rf "$work"' EXIT
server='' live=''
mkdir -p hub/models--org--tiny/snapshots/abc hub/models--org--tiny/refs && cp "$root"/models/demo/* hub/models--org--tiny/snapshots/abc/ && echo abc >hub/models--org--tiny/refs/main
get() { exec 3<>/dev/tcp/127.0.0.1/"$port" && printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3 && cat <&3; }
start() { # on $port, or on any
    MODEL_REPO=org/tiny HF_HUB_CACHE=$work/hub "$shoal" serve --port "${port:-0}" --runtime-dir "$work" --grace 1 >serve.out 2>&1 & server=$!
    for _ in $(seq 200); do
        port=$(grep -oE 'http://127.0.0.1:[0-9]+' serve.out | grep -oE '[0-9]+$' | head -n 1)
        [ -n "$port" ] && get /health 2>/dev/null | grep -q '"ok":true' && return 0
        sleep .1
    done
    cat serve.out; return 1
}
stop() { kill "$server"; wait "$server"; }

start || { echo "not ok 1 - the server starts"; echo "1..1"; exit 1; }
check "a model of the cache is served by its name" 'get /v1/models | grep -q "\"org/tiny\""'
check "one frame is printed where there is no terminal" '"$shoal" monitor --url "http://127.0.0.1:$port/" >frame && grep -q "org/tiny   healthy" frame && grep -qE "^ +0  .*\[" frame && grep -q "waiting, 0 running" frame'
check "--once says when there is no server" 'exits 1 "$shoal" monitor --once --url http://127.0.0.1:1 && grep -q "does not answer" err'
check "a URL that is none is refused" 'exits 1 "$shoal" monitor --once --url nonsense && grep -q "is no http or https URL" err'

if command -v script >/dev/null; then
    mkfifo keys
    script -qec "stty cols 60 rows 8; '$shoal' monitor --interval 0.2 --url http://127.0.0.1:$port; echo code \$?" screen <keys >/dev/null 2>&1 & live=$!
    exec 4>keys
    shows() { local _; for _ in $(seq 100); do tail -c 4000 screen | grep -q -- "$1" && return 0; sleep .1; done; tail -c 600 screen | cat -v; return 1; }
    check "the live view shows the ranks" 'shows "org/tiny   healthy"'
    check "lines are as long as the terminal is wide" '! tr -d "\r" <screen | sed "s/\x1b\[[?0-9]*[a-zA-Z]//g" | grep -v "^Script" | grep -qE "^.{61,}"'
    stop
    check "it waits for a server that went away" 'shows "waiting for it"'
    : >screen; start
    check "and shows it again when it is back" 'shows "org/tiny   healthy"'
    printf '\003' >&4
    check "Ctrl-C gives the terminal back, with code 0" 'shows "1049l" && shows "code 0"'
    exec 4>&-
else
    skip "the live view" "needs script"
fi
done_testing
