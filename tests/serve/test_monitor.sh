#!/usr/bin/env bash
# `shoal monitor` with a real server that stops and starts again, and a model that is served by its name in the cache.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'kill $server $live 2>/dev/null; wait 2>/dev/null; cd /; rm -rf "$work"' EXIT
server='' live=''
tiny=hub/models--org--tiny
mkdir -p $tiny/snapshots/abc $tiny/refs && cp "$root"/models/demo/* $tiny/snapshots/abc/ && echo abc >$tiny/refs/main
get() { exec 3<>/dev/tcp/127.0.0.1/"$port" && printf 'GET %s HTTP/1.0\r\n\r\n' "$1" >&3 && cat <&3; }
start() { # on $port, or on any port
    MODEL_REPO=org/tiny HF_HUB_CACHE=$work/hub \
        "$shoal" serve --port "${port:-0}" --runtime-dir "$work" --grace 1 >serve.out 2>&1 & server=$!
    for _ in $(seq 200); do
        port=$(grep -oE 'http://127.0.0.1:[0-9]+' serve.out | grep -oE '[0-9]+$' | head -n 1)
        [ -n "$port" ] && get /health 2>/dev/null | grep -q '"ok":true' && return 0
        sleep .1
    done
    cat serve.out; return 1
}
stop() { kill "$server"; wait "$server"; }

start || { echo "not ok 1 - the server starts"; echo "1..1"; exit 1; }
check "a model of the cache is served by its name" prints '"org/tiny"' get /v1/models
one_frame() {
    "$shoal" monitor --url "http://127.0.0.1:$port/" >frame && grep -q "org/tiny   healthy" frame &&
        grep -qE "^ +0  .*\[" frame && grep -q "waiting, 0 running" frame
}
check "one frame is printed when there is no terminal" one_frame
once() { "$shoal" monitor --once --url "$1"; }
check "--once says when there is no server" refuses 1 "does not answer" once "http://127.0.0.1:$(free_port)"
check "an invalid URL is refused" refuses 1 "is not an http or https URL" once nonsense

if command -v script >/dev/null; then
    mkfifo keys
    watch="'$shoal' monitor --interval 0.2 --url http://127.0.0.1:$port"
    script -qec "stty cols 60 rows 8; $watch; echo code \$?" screen <keys >/dev/null 2>&1 & live=$!
    exec 4>keys
    shown() { tail -c 4000 screen | grep -q -- "$1"; }
    shows() { within 10 shown "$1" || { tail -c 600 screen | cat -v; return 1; }; }
    check "the live view shows the ranks" shows "org/tiny   healthy"
    plain() { tr -d '\r' <screen | sed 's/\x1b\[[?0-9]*[a-zA-Z]//g' | grep -v "^Script"; }
    check "lines are no longer than the terminal is wide" not prints '^.{61,}' plain
    stop
    check "it waits for a server that went away" shows "waiting for the server"
    : >screen; start
    check "and shows it again when it is back up" shows "org/tiny   healthy"
    printf '\003' >&4
    ends() { shows 1049l && shows "code 0"; }
    check "Ctrl-C restores the terminal, with exit code 0" ends
    exec 4>&-
else
    skip "the live view" "needs script"
fi
done_testing
