#!/usr/bin/env bash
# The API with an engine: what happens when either starts, stops, is full or slow.
. "$(dirname "$0")/lib.sh"

chat=/v1/chat/completions
asked() { gets "$1" $chat -d "$2" "${@:3}"; } # STATUS BODY [flags of curl]
hello='"messages":[{"role":"user","content":"What is 37 + 48?"}],"temperature":0'
tale='"messages":[{"role":"user","content":"Tell me a story about a fox and a lantern."}],"temperature":0'
tale="$tale,\"ignore_eos\":true"
story="$tale,\"stream\":true"
# stream TOKENS &: in the background, so that $! is curl itself
stream() { exec curl -sN -d "{$story,\"max_tokens\":$1}" "$(url $chat)"; }
count() { curl -s "$(url "$1")" | grep -oE "\"$2\":[0-9]+" | cut -d: -f2; }    # PATH FIELD
running() { count /metrics/snapshot requests_running; }
until_running() { within 10 gives "$1" running; }
cancelled() { count /requests/stats cancelled; }
# post_raw BODY: sends such a request on descriptor 9, whose response is not read
post_raw() {
    exec 9<>"/dev/tcp/127.0.0.1/$port"
    printf 'POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s' $chat ${#1} "$1" >&9
}

serve_api api --request-log requests.jsonl --access-log access.jsonl --model-name my/model --hard-max-tokens 200 \
    --replay-timeout 1 ||
    { echo "Bail out!"; cat api.log; exit 1; }
check "before the engine starts it is 503" asked 503 "{$hello}"
# The generic kernels are slow enough to be caught in the middle of an answer.
serve_engine --slots 2 --queue-max 1 --cpu generic
found() { await /health/ready 200 && asked 200 "{$hello}" && has body "37 . 48 = 85"; }
check "the engine is found when it starts" found
older() {
    asked 200 "{$hello,\"conversation_id\":\"c-1\"}" && has body '"conversation_id":"c-1"' &&
        has body '"performance":\{"prompt_eval_tokens_per_second"' && has body '"timing":\{"seconds"'
}
check "the response has the fields that older clients expect" older
# The demo model does not reason, but a message that opens the reasoning makes all that follows reasoning.
thoughts() { # [MORE FIELDS]
    asked 200 "{\"messages\":[{\"role\":\"user\",\"content\":\"A story\"},{\"role\":\"assistant\",
        \"content\":\"<think>\"}],\"temperature\":0,\"max_tokens\":40$1}" &&
        jq -r '.choices[0].message.reasoning_content' body >thoughts
}
limits_thoughts() {
    local free json=',"response_format":{"type":"json_object"}'
    thoughts ''; free=$(cat thoughts)
    thoughts ',"thinking_token_budget":5' && [[ ${#free} -gt 100 && $free == "$(cat thoughts)"* ]] &&
        gives 6 jq .usage.completion_tokens_details.reasoning_tokens body && # the closing marker counts
        thoughts ',"thinking_token_budget":5'"$json" && [[ $free == "$(cat thoughts)"* ]] &&
        jq -r '.choices[0].message.content' body | grep -q '^{'
}
if command -v jq >/dev/null; then check "reasoning ends where the request says" limits_thoughts
else skip "reasoning ends where the request says" "jq is missing"; fi
healthy() {
    gets 200 /health && has body '"model":"my/model"' && has body '"world_size":1' && has body '"queue_max":1' &&
        has body '"memory_safe":true'
}
check "health reports the model" healthy
snapshot_has() { gets 200 /metrics/snapshot && has body "$1"; }
hardware() {
    within 5 snapshot_has '"hardware":\{"[^"]+":\{.*"ram_total_gb":[0-9]' &&
        gets 200 /model/info && has body '"backend":"local"'
}
check "the model and the hosts are reported with their hardware" hardware
names() {
    gets 200 /v1/models/my/model && gets 200 /v1/models/my%2Fmodel && gets 200 /v1/models/demo &&
        gets 404 /v1/models/other
}
check "a model is found by a name with a slash" names
ids() {
    gets 200 /tokenize -d '{"content":"Hello, world"}' && cp body tokens && gets 200 /detokenize -d @tokens &&
        is "$(cat body)" '{"content":"Hello, world","prompt":"Hello, world"}' &&
        gets 400 /detokenize -d '{"tokens":[999999]}'
}
check "text is converted to ids and back" ids
bad_json() { asked 400 '{"messages":' && has body invalid_json && has body "line 1"; }
check "bad JSON is 400 with the position" bad_json
zero() {
    asked 400 '{"messages":[{"role":"user","content":"a\u0000b"}]}' && has body invalid_json && has body u0000 &&
        gets 400 /tokenize -d '{"content":"a\u0000b"}' && has body u0000
}
check "a NUL character in a string is refused by name, not truncated" zero
check "deep JSON is refused" asked 400 "$(head -c 100000 /dev/zero | tr '\0' '[')"
longest() { asked 200 "{$tale,\"max_tokens\":5000}" -m 250 && has body '"completion_tokens":200,'; }
check "an answer is no longer than the server allows" longest

one_more() { until_running 0 && within 10 gives $(($1 + 1)) cancelled; } # cancelled before
leaves() {
    local before; before=$(cancelled)
    stream 500 >out & local client=$!
    until_running 1; kill $client
    one_more "$before"
}
check "the request of a client that disconnects is cancelled at once" leaves
leaves_unread() {
    local before; before=$(cancelled)
    post_raw "{$tale,\"max_tokens\":500}"; until_running 1; exec 9<&- 9>&-
    one_more "$before"
}
check "so is that of a client that disconnects without reading" leaves_unread
full() {
    local clients=() rc
    for _ in 1 2 3; do stream 300 >/dev/null & clients+=($!); done
    until_running 3; asked 429 "{$hello}" && has head "^Retry-After: [0-9]" && has body queue_full; rc=$?
    kill "${clients[@]}"; until_running 0; return $rc
}
check "a full queue is 429 with Retry-After" full
too_many() { asked 400 "{$hello,\"n\":4}" && has body "4 answers were requested; this server takes 3"; }
check "more answers than the queue ever holds are refused for good" too_many
rss() { awk '/VmRSS/{print $2}' "/proc/$api_pid/status"; }
unread() {
    local before after rc; before=$(rss)
    post_raw "{$story,\"max_tokens\":200,\"logprobs\":true,\"top_logprobs\":20}"
    until_running 1; within 250 gives 0 running; after=$(rss)
    timeout 60 head -c 100 <&9 | grep -q "200 OK"; rc=$?; exec 9<&- 9>&-
    echo "$before to $after KiB"; [ $rc = 0 ] && [ $((after - before)) -lt 16384 ]
}
check "a client that does not read does not make the server grow" unread

engine_dies() {
    stream 200 >out & local streaming=$!
    until_running 1; within 10 grep -q data: out
    kill -9 "$engine_pid"; wait $streaming
    has out '^data: \{"error":\{"message":"the engine is gone' && ! grep -q DONE out && has out '"detail":'
}
check "an engine that does not come back ends a stream with an error, not silently" engine_dies
lost() { asked 503 "{$hello}" && gets 503 /health && has body engine_lost && gets 200 /v1/models; }
check "then requests get 503, and health reports it" lost
serve_engine --cpu generic
check "a restarted engine is used again" found

kept() {
    gets 200 "/requests/recent?n=100" && has body '"status":"ok"' && has body '"finish_reason":"length"' &&
        ! grep -q "37 + 48" body && gets 200 /requests/stats && has body '"p95_latency_s":[0-9]'
}
check "requests are recorded without their text" kept
logged() {
    has requests.jsonl '"kind":"chat"' && ! grep -q fox requests.jsonl access.jsonl api.log &&
        ! grep -qvE '^\{.*\}$' requests.jsonl
}
check "the request log has one JSON line per request, without text" logged
steps_counted() { gets 200 /metrics && has body "^shoal_engine_steps_total[{].*[}] [1-9]"; }
prometheus() {
    within 5 steps_counted && has body "^shoal_time_to_first_token_seconds_count [1-9]" && promtool check metrics <body
}
if command -v promtool >/dev/null; then
    check "promtool accepts the metrics, including those of the engine" prometheus
else
    skip "promtool accepts the metrics, including those of the engine" "promtool is missing (Debian package prometheus)"
fi

rm -f out # or the output of an earlier test would be taken for the beginning of this answer
stream 40 >out & streaming=$!
within 5 grep -q data: out
kill -TERM "$api_pid"
check "while it stops it accepts no new connections" within 2 not curl -s -m 2 "$(url /health/live)"
wait "$api_pid"; rc=$?; wait $streaming
finished() { is $rc 0 && has out "\[DONE\]"; }
check "a running answer finishes when the API is asked to stop" finished
serve_api prompts --log-prompts && await /health/ready 200
api() { timeout 20 "$shoal" api --socket "$work/x.sock" --port 0 "$@"; }
parsers() {
    refuses 1 "unknown tool-call dialect .nope., choose one of none.*hermes" api --tool-parser nope &&
        refuses 1 "choose one of none.*think" api --reasoning-parser nope
}
check "an unknown parser is refused with the names of the known ones" parsers
prompts_logged() { asked 200 "{$hello}" && has prompts.log "prompt: .*37 \+ 48"; }
check "prompts are logged on request" prompts_logged
check "the API restarts while the engine keeps its model" gives 1 grep -c ready engine.log
stop "$api_pid"; stop "$engine_pid"
check "the logs are free of assertions and sanitizer reports" no_complaint ./*.log
done_testing
