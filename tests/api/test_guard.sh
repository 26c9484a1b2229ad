#!/usr/bin/env bash
# What the API does not disclose, what it refuses and counts, and whether its numbers are current.
. "$(dirname "$0")/lib.sh"
key=sk-guard-4fZq81Lx0p
bearer="Authorization: Bearer $key"
hello='"messages":[{"role":"user","content":"What is 37 + 48?"}],"temperature":0'
story='"prompt":"Once upon a time","temperature":0,"ignore_eos":true'

field() { grep -oE "\"$1\":[^,}]+" body | head -n 1 | cut -d: -f2; } # a simple member of the last response
chat() { status_of -H "$bearer" -d "$1" "$(url /v1/chat/completions)"; }
get() { status_of -H "$bearer" "$(url "$1")"; }

weak_keys_are_refused() {
    local weak
    for weak in abc aaaaaaaaaaaaaaaaaaaaaaaa 0123456789abcdef changemechangeme; do
        exits 1 timeout 20 "$shoal" api --socket s --port 0 --api-key "$weak" || return 1
        has err "API key is too easy to guess" || return 1
        ! grep -q "$weak" err || { echo "the key is shown"; return 1; }
    done
}
check "keys that are easy to guess are refused at startup" weak_keys_are_refused

serve_api api --api-key $key || { echo "Bail out! the API did not start"; cat api.log; exit 1; }

nothing_is_told_while_starting() {
    is "$(status_of "$(url /health)")" 503 && is "$(cat body)" '{"status":"starting","ok":false}' &&
        is "$(status_of "$(url /health/ready)")" 503 && ! grep -q "$work" body
}
check "without a key nobody learns why the engine is unavailable" nothing_is_told_while_starting
refusals_of_a_server_without_engine_are_counted() {
    is "$(chat "{$hello}")" 503 && is "$(status_of -d "{$hello}" "$(url /v1/chat/completions)")" 401 &&
        get /requests/stats >/dev/null && is "$(field total_requests)" 2 && is "$(field refused)" 2 &&
        is "$(field errors)" 0 && has body '"refused_by_status":\{"503":1,"401":1\}' &&
        get /metrics >/dev/null && has body '^shoal_requests_total\{outcome="refused"\} 2$'
}
check "503 responses and refusals are counted" refusals_of_a_server_without_engine_are_counted

serve_engine --context 640 --req-timeout 77
await /health/ready 200

health_is_brief_without_a_key() {
    is "$(status_of "$(url /health)")" 200 && is "$(cat body)" '{"status":"healthy","ok":true}' &&
        get /health >/dev/null && has body '"ranks":\[\{' && has body '"pid":[0-9]'
}
check "health without a key shows only the status" health_is_brief_without_a_key
settings_tell_the_time_limit() { get /settings >/dev/null && is "$(field timeout_s)" 77; }
check "the settings show the time limit of the engine" settings_tell_the_time_limit

bad_requests_are_no_points() {
    is "$(chat "{$hello,\"max_tokens\":8}")" 200 && is "$(chat '{"messages":[]}')" 400 &&
        is "$(chat "{$hello,\"model\":\"other\"}")" 404 && get /metrics/snapshot >/dev/null &&
        is "$(field error_count)" 0 && is "$(field refused_count)" 4 && is "$(field recent_count)" 1 &&
        is "$(grep -oE '"tps":[^,]+' body | wc -l)" 1 && ! grep -q '"tps":0,' body
}
check "bad requests count neither as errors nor as data points of 0 tokens per second" bad_requests_are_no_points

answers_are_as_long_as_the_context() {
    status_of -m 60 -H "$bearer" -d "{$story}" "$(url /v1/completions)" >/dev/null
    is "$(field total_tokens)" 640 && has body '"finish_reason":"length"'
}
check "an answer without max_tokens may fill the context" answers_are_as_long_as_the_context

# The step plan is made before its first token is sent, so a stream that has begun is running.
figures_are_of_now() {
    local stream
    for _ in 1 2 3 4 5; do
        : >out
        curl -sN -H "$bearer" -d "{$story,\"stream\":true}" "$(url /v1/completions)" >out & stream=$!
        while ! grep -q data: out; do sleep 0.01; done
        get /queue >/dev/null; is "$(field running)" 1 || { kill $stream; return 1; }
        get /metrics >/dev/null; has body '^shoal_engine_running_requests[{].*[}] 1$' || { kill $stream; return 1; }
        kill $stream; wait $stream 2>/dev/null
        for _ in $(seq 50); do get /queue >/dev/null; [ "$(field running)" = 0 ] && break; sleep 0.1; done
        is "$(field running)" 0 || return 1
    done
}
check "queue and metrics show what is running now" figures_are_of_now

half_closed_streams_are_answered() {
    local body="{$story,\"max_tokens\":40,\"stream\":true}"
    printf 'POST /v1/completions HTTP/1.1\r\nHost: a\r\n%s\r\nContent-Length: %d\r\n\r\n%s' \
        "$bearer" ${#body} "$body" | timeout 20 nc -N 127.0.0.1 "$port" >out
    has out '^data: \[DONE\]'
}
check "a client that has half-closed the connection gets its stream" half_closed_streams_are_answered

calls_that_must_come_do() {
    local tool='"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}]'
    local oslo='"messages":[{"role":"user","content":"What is the weather in Oslo?"}],"temperature":0'
    is "$(chat "{$oslo,$tool,\"tool_choice\":\"required\"}")" 200 && has body '"name":"get_weather"' &&
        is "$(chat "{$oslo,$tool,\"tool_choice\":\"required\",\"max_tokens\":2}")" 200 && has body '"length"' &&
        is "$(chat "{$oslo,$tool,\"tool_choice\":{\"function\":{\"name\":\"other\"}}}")" 400 && has body tool_choice
}
check "a required tool call is made, unless the answer is cut" calls_that_must_come_do

resident_kib() { awk '/VmHWM/ { print $2 }' "/proc/$api_pid/status"; }
bodies_of_zeros_cost_little() {
    local before after
    { printf '{"prompt":['; head -c 32000000 /dev/zero | tr '\0' '0' | sed 's/../0,/g'; printf '0]}'; } >zeros
    before=$(resident_kib)
    is "$(status_of -H "$bearer" --data-binary @zeros "$(url /v1/completions)")" 400 || return 1
    after=$(resident_kib); echo "$before to $after KiB"
    has body too_many_values && [ $((after - before)) -lt 200000 ]
}
check "32 MB of zeros and commas are refused before they are parsed into a tree" bodies_of_zeros_cost_little

# The engine is stopped while two bodies wait that have, with their padding, as many values as all bodies together may.
large_bodies_shut_nobody_out() {
    local clients=() small
    { printf '{%s,"max_tokens":2,"pad":[' "$story"; yes 0, | head -n 2097145 | tr -d '\n'; printf '0]}'; } >padded
    kill -STOP "$engine_pid"
    for _ in 1 2; do
        curl -s -H "$bearer" --data-binary @padded "$(url /v1/completions)" >/dev/null & clients+=($!)
    done
    sleep 1
    chat "{$hello,\"max_tokens\":2}" >code & small=$!
    sleep 0.3; kill -CONT "$engine_pid"
    wait "$small" "${clients[@]}"
    is "$(cat code)" 200
}
check "large bodies do not block small ones" large_bodies_shut_nobody_out

stop "$api_pid"; stop "$engine_pid"
nothing_complained() { no_complaint ./*.log && ! grep -q "$key" ./*.log; }
check "the logs are free of assertions and sanitizer reports" nothing_complained
done_testing
