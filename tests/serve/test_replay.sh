#!/usr/bin/env bash
# An answer and its ranks: how long a stream pauses when a worker is killed, and that a short stop is no loss.
# alone: the pause is measured
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d /tmp/shoal-replay-XXXXXX) && cd "$work" || exit 1
trap 'kill -9 $serve_pid 2>/dev/null; rm -rf "$work"' EXIT
unset "${!SHOAL_@}"
case $shoal in *san/*) pause_ms=10000 times=2 ;; *) pause_ms=1000 times=10 ;; esac
port=$(free_port)
(cd "$root" && exec "$shoal" serve --ranks 2 --port "$port" --runtime-dir "$work" --threads 1) >serve.log 2>&1 &
serve_pid=$!
ready() { curl -sf -m 2 -o /dev/null "http://127.0.0.1:$port/health/ready"; }
check "serves the demo model on two ranks" within 30 ready

pids_of() {
    local pid
    for pid in $(pgrep -P $serve_pid); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "$1" && echo "$pid"
    done
}
# stream FILE [COMMAND...]: writes the text of an answer of 500 tokens; after the 50th part the command is run. Prints
# the longest pause in ms.
stream() {
    local file=$1 line count=0 now last=0 longest=0; shift
    while read -r line; do
        [ ${#line} -gt 0 ] || continue
        now=${EPOCHREALTIME/./} count=$((count + 1))
        [ $count -gt 3 ] && [ $((now - last)) -gt $longest ] && longest=$((now - last))
        last=$now
        echo "$line"
        [ $count = 50 ] && [ $# -gt 0 ] && "$@"
    done < <(curl -s -N -m 60 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages":[{"role":"user","content":"Tell me a story."}],"temperature":1,"seed":3,"max_tokens":500,
             "ignore_eos":true,"stream":true}') >parts
    grep -oE '"(content|finish_reason|error)":"([^"\\]|\\.)*"' parts | sed -E 's/^"content":"//; s/"$//' |
        tr -d '\n' >"$file"
    echo $((longest / 1000))
}
kill_worker() { kill -9 "$(pids_of SHOAL_RANK=1)"; }
stop_worker() { local pid; pid=$(pids_of SHOAL_RANK=1); kill -STOP "$pid"; (sleep 1; kill -CONT "$pid") & }

stream want >pauses.quiet
whole() { [ "$(wc -c <want)" -gt 1000 ] && grep -q '"finish_reason":"length$' want; }
check "an undisturbed answer has all its tokens" whole
stopped() {
    stream got stop_worker
    cmp want got && not grep -qE 'was lost|restarting' serve.log || { cat serve.log; return 1; }
}
check "a worker that is stopped for a second is no loss, and the answer is the same" stopped
killed() {
    for _ in $(seq $times); do
        stream got kill_worker >>pauses
        cmp want got || { tail serve.log; return 1; }
    done
}
check "an answer goes on with the same tokens after kill -9 of a worker, $times times" killed
echo "# pauses in ms, undisturbed $(cat pauses.quiet), after a kill: $(sort -n pauses | tr '\n' ' ')"
# Restarts after the third within a minute have a pause of half a second.
middle() { sort -n pauses | sed -n "$(((times + 1) / 2))p"; }
pause_ms=$((pause_ms * $(crowd)))
short() { [ "$(middle)" -le $pause_ms ] || { cat pauses; return 1; }; }
check "the next token came within $pause_ms ms, in the middle" short
kill -TERM $serve_pid
check "and the server ends" within 20 not kill -0 $serve_pid
done_testing
