#!/usr/bin/env bash
# `shoal worker` keeps its rank running: the rank is killed, stopped and renewed under an answer, which stays the same,
# and nothing of a worker stays behind, however it ends.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
scratch
unset "${!SHOAL_@}"
export SHOAL_TOKEN; SHOAL_TOKEN=$("$shoal" token)
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
address=127.0.0.1:$(free_port)
group=(--coordinator "127.0.0.1:$(free_port)" --ranks 2 --model "$root/models/demo" --threads 1)
work_start() { "$shoal" "$@" --rank 1 "${group[@]}" --frozen-after 1 >>worker.log 2>&1 & worker=$!; }
finish() {
    kill $server $worker 2>/dev/null; wait $server
    kill $worker 2>/dev/null; wait $worker
    cd / && rm -rf "$work"
}
# A slow machine must not go on without its rank: another number of ranks rounds differently.
"$shoal" serve --rank 0 "${group[@]}" --port "${address#*:}" --runtime-dir "$work" --degrade-after 60 >log 2>&1 &
server=$!
work_start worker
trap finish EXIT
within 30 grep -q serving log || { cat log worker.log; exit 1; }
rank() { pgrep -P $worker; }
is_new() { [ -n "$(rank)" ] && [ "$(rank)" != "$old" ]; }
ask() { # TOKENS
    local body='{"messages":[{"role":"user","content":"Tell me a story."}],"temperature":0.9,"ignore_eos":true,'
    curl -sS -N -m 60 -H 'Content-Type: application/json' "http://$address/v1/chat/completions" \
        -d "$body\"seed\":7,\"max_tokens\":$1,\"stream\":true}"
}
text() { grep -oE '"content":"([^"\\]|\\.)*"' "$1" | sed -E 's/^"content":"//; s/"$//' | tr -d '\n'; }
ask 600 >quiet && text quiet >want && grep -q '\[DONE\]' quiet || exit 1
hurt() { # SIGNAL PROCESS: something happens during an answer, and a new rank finishes it
    local one old; old=$(rank)
    ask 600 >a & one=$!
    within 10 grep -q content a; kill "-$1" "$2"
    wait $one && text a | cmp - want || { head -c 600 a; tail -n 20 log worker.log; return 1; }
    within 10 is_new && [ "$(rank | wc -l)" = 1 ] && kill -0 $worker
}
check "a rank that is killed is restarted, and the answer goes on" hurt KILL "$(rank)"
check "so is one that is frozen" hurt STOP "$(rank)"
check "SIGUSR2 replaces the rank by a new process" hurt USR2 $worker
gone() { ! kill -0 "$1" 2>/dev/null; }
orphan() {
    local old; old=$(rank)
    kill -KILL $worker
    within $((2 * slow)) gone "$old"
}
check "a rank whose worker was killed ends as well" orphan
wait $worker 2>/dev/null
work_start serve --port 0
both() { curl -s -m 5 "http://$address/health" | grep -q '"status":"healthy".*"world_size":2,"degraded":false'; }
within $((20 * slow)) both
again() { ask 600 >a && text a | cmp - want; }
check "serve --rank 1 is the same, and is taken in again" again
forced() {
    kill -INT $worker; sleep .2; kill -INT $worker
    within $((3 * slow)) gone $worker
}
old=$(rank)
check "the second Ctrl-C does not wait for the group" forced
check "and leaves no rank behind" gone "$old"
alone() { curl -s -m 5 "http://$address/health" | grep -q '"world_size":1,"degraded":false'; }
check "the group does not wait for it" within $((10 * slow)) alone
work_start worker
within $((20 * slow)) both
let_go() { # while an answer goes on
    ask 300 >a & local one=$!
    within 10 grep -q content a; kill -INT $worker
    wait $worker || { echo "code $?"; cat worker.log; return 1; }
    wait $one && grep -q '\[DONE\]' a && within $((10 * slow)) alone || { tail -n 20 log worker.log; return 1; }
}
let_go >said 2>&1; code=$? # not in a subshell, which could not wait for the worker
went_well() { [ $code = 0 ] || { cat said; return 1; }; }
check "the first Ctrl-C lets the group go on without the rank, and the worker ends well" went_well
# Whatever it does just then: load, wait to come in, form the group, be in it for a moment.
leave_early() {
    local delay one bad=0
    for delay in 0 0.05 0.1 0.15 0.2 0.25 0.3; do
        ask 300 >a & one=$!
        work_start worker
        within 10 rank && sleep $delay; kill -INT $worker
        wait $worker || { echo "after $delay s: code $?"; bad=1; }
        wait $one && grep -q '\[DONE\]' a || { echo "after $delay s: an answer was lost"; bad=1; }
        within $((10 * slow)) alone || { echo "after $delay s: the group waits for it"; bad=1; }
    done
    [ $bad = 0 ] || { tail -n 40 log worker.log; return 1; }
}
leave_early >said 2>&1; code=$?
check "so it does for a worker that is stopped as it comes in" went_well
done_testing
