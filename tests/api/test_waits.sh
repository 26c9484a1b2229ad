#!/usr/bin/env bash
# Large requests do not make others wait.
. "$(dirname "$0")/lib.sh"

chat=/v1/chat/completions
tale='"messages":[{"role":"user","content":"Tell me a story about a fox and a lantern."}],"temperature":0'
stream() { curl -sN -d "{$tale,\"ignore_eos\":true,\"stream\":true,\"max_tokens\":$1}" "$(url $chat)"; } # TOKENS
running() { curl -s "$(url /metrics/snapshot)" | grep -oE '"requests_running":[0-9]+' | cut -d: -f2; }
until_running() { within 10 gives "$1" running; }

serve_api api || { echo "Bail out!"; cat api.log; exit 1; }
# The generic kernels are slow enough to be caught in the middle of an answer.
serve_engine --slots 2 --cpu generic
check "the engine is found when it starts" await /health/ready 200

microseconds() {
    local t; t=$(curl -s -o /dev/null -w '%{time_total}' "$(url /health/live)" | tr -d .)
    echo $((10#$t))
}
# slowest_while PID: the slowest response of /health/live while PID runs, and of at least 30, in microseconds
slowest_while() {
    local slowest=0 us i=0
    while [ $((i++)) -lt 30 ] || kill -0 "$1" 2>/dev/null; do
        us=$(microseconds); [ "$us" -gt $slowest ] && slowest=$us
    done
    echo $slowest
}
long_prompt() {
    printf '{"messages":[{"role":"user","content":"%s"}]}' "$(head -c 1048576 /dev/zero | tr '\0' a)" >long.json
    stream 60 >stream & local streaming=$! long slowest
    until_running 1
    curl -s -o longout -w '%{http_code}' --data-binary @long.json "$(url $chat)" >longcode & long=$!
    slowest=$(slowest_while $long)
    wait $long; wait $streaming; echo "slowest answer $slowest us"
    is "$(cat longcode)" 400 && has longout context_length_exceeded && has stream "\[DONE\]" &&
        [ "$slowest" -lt $((300000 * $(crowd))) ]
}
check "a prompt of one megabyte does not delay a stream" long_prompt
{ printf '{"tokens":['; yes 65 | head -n 1500000 | paste -sd,; printf ']}'; } >ids.json
long_list() {
    curl -s -o longout -w '%{http_code}' --data-binary @ids.json "$(url /detokenize)" >longcode & local long=$! slowest
    slowest=$(slowest_while $long); wait $long
    echo "slowest answer $slowest us"
    is "$(cat longcode)" 200 && [ "$(wc -c <longout)" -gt 1500000 ] && [ "$slowest" -lt $((300000 * $(crowd))) ]
}
check "a long list of ids to detokenize does not delay others" long_list
senders_left() {
    local senders=() start took
    for _ in $(seq 24); do
        curl -s -m 0.4 -o /dev/null --data-binary @ids.json "$(url /detokenize)" & senders+=($!)
    done
    wait "${senders[@]}"
    head -c 20000 /dev/zero | tr '\0' a | sed 's/.*/{"content":"&"}/' >text.json; start=$(now_ms)
    gets 200 /tokenize --data-binary @text.json; took=$(($(now_ms) - start)); echo "$took ms"
    [ $took -lt $((3000 * $(crowd))) ]
}
check "requests of clients that have disconnected are not processed" senders_left
stop "$api_pid"; stop "$engine_pid"
check "the logs are free of assertions and sanitizer reports" no_complaint ./*.log
done_testing
