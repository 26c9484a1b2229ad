#!/usr/bin/env bash
# The API with an engine behind it: what happens when either comes, goes, is full or slow.
. "$(dirname "$0")/lib.sh"

ask() { # body flags...
    local body=$1; shift
    curl -s -o body -D head -w '%{http_code}' -d "$body" "$@" "$(url /v1/chat/completions)"
}
hello='"messages":[{"role":"user","content":"What is 37 + 48?"}],"temperature":0'
story='"messages":[{"role":"user","content":"Tell me a story about a fox and a lantern."}],"temperature":0,"ignore_eos":true,"stream":true'
running() { curl -s "$(url /metrics/snapshot)" | grep -oE '"requests_running":[0-9]+' | cut -d: -f2; }
until_running() { for _ in $(seq 200); do [ "$(running)" = "$1" ] && return 0; sleep 0.05; done; echo "$(running) run, not $1"; return 1; }
cancelled() { curl -s "$(url /requests/stats)" | grep -oE '"cancelled":[0-9]+' | cut -d: -f2; }

serve_api api --request-log requests.jsonl --access-log access.jsonl --model-name my/model --hard-max-tokens 600 || { echo "Bail out!"; cat api.log; exit 1; }
check "before the engine comes it is 503" 'is "$(ask "{$hello}")" 503'
# The plain kernels are slow enough to be caught at work.
serve_engine --slots 2 --queue-max 1 --cpu generic
check "the engine is found when it comes" 'await /health/ready 200 && is "$(ask "{$hello}")" 200 && has body "37 . 48 = 85"'
check "the answer has what older clients look for" '
    is "$(ask "{$hello,\"conversation_id\":\"c-1\"}")" 200 && has body "\"conversation_id\":\"c-1\"" && has body "\"performance\":\{\"prompt_eval_tokens_per_second\"" && has body "\"timing\":\{\"seconds\""'
check "health tells of the model" 'is "$(status_of "$(url /health)")" 200 && has body "\"model\":\"my/model\"" && has body "\"world_size\":1" && has body "\"queue_max\":1" && has body "\"memory_safe\":true"'
check "the model and the hosts are told with what carries them" '
    for _ in $(seq 40); do status_of "$(url /metrics/snapshot)" >/dev/null; grep -q "\"ram_total_gb\":[0-9]" body && break; sleep 0.1; done
    has body "\"hardware\":\{\"[^\"]+\":\{.*\"ram_total_gb\":[0-9]" && is "$(status_of "$(url /model/info)")" 200 && has body "\"backend\":\"local\""'
check "a model is found by a name with a slash" 'is "$(status_of "$(url /v1/models/my/model)")" 200 && is "$(status_of "$(url /v1/models/my%2Fmodel)")" 200 && is "$(status_of "$(url /v1/models/demo)")" 200 && is "$(status_of "$(url /v1/models/other)")" 404'
check "text becomes ids and text again" '
    is "$(status_of -d "{\"content\":\"Hello, world\"}" "$(url /tokenize)")" 200 && tokens=$(cat body) &&
    is "$(status_of -d "$tokens" "$(url /detokenize)")" 200 && is "$(cat body)" "{\"content\":\"Hello, world\"}" &&
    is "$(status_of -d "{\"tokens\":[999999]}" "$(url /detokenize)")" 400'
check "bad JSON is 400 with the place" 'is "$(ask "{\"messages\":")" 400 && has body "invalid_json" && has body "line 1"'
check "a zero character in a string is refused by name, not cut" '
    is "$(ask "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}")" 400 && has body invalid_json && has body "u0000" &&
    is "$(status_of -d "{\"content\":\"a\\u0000b\"}" "$(url /tokenize)")" 400 && has body "u0000"'
check "deep JSON is refused" 'is "$(ask "$(head -c 100000 /dev/zero | tr "\\0" "[")")" 400'
check "an answer is no longer than the server allows" 'is "$(ask "{${story/,\"stream\":true/},\"max_tokens\":5000}" -m 120)" 200 && has body "\"completion_tokens\":600,"'

check "a client that leaves is taken out at once" '
    before=$(cancelled); curl -sN -m 1 -d "{$story,\"max_tokens\":500}" "$(url /v1/chat/completions)" >out
    until_running 0 && [ "$(cancelled)" = $((before + 1)) ]'
check "one that leaves without reading is, too" '
    before=$(cancelled); body="{${story/,\"stream\":true/},\"max_tokens\":500}"; exec 9<>/dev/tcp/127.0.0.1/$port
    printf "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: ${#body}\r\n\r\n%s" "$body" >&9; until_running 1; exec 9<&- 9>&-
    until_running 0 && [ "$(cancelled)" = $((before + 1)) ]'
check "a full queue is 429 with Retry-After" '
    clients=""; for i in 1 2 3; do curl -sN -d "{$story,\"max_tokens\":300}" "$(url /v1/chat/completions)" >/dev/null & clients="$clients $!"; done; until_running 3
    is "$(ask "{$hello}")" 429; rc=$?; has head "^Retry-After: [0-9]" && has body queue_full || rc=1
    kill $clients; until_running 0; return $rc'
check "more answers than the queue ever holds are refused for good" 'is "$(ask "{$hello,\"n\":4}")" 400 && has body "4 answers are asked for; this server takes 3"'
check "a client that reads nothing does not grow the server" '
    rss() { awk "/VmRSS/{print \$2}" /proc/$api_pid/status; }; before=$(rss); body="{$story,\"max_tokens\":600,\"logprobs\":true,\"top_logprobs\":20}"
    exec 9<>/dev/tcp/127.0.0.1/$port; printf "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: ${#body}\r\n\r\n%s" "$body" >&9
    until_running 1; for _ in $(seq 1200); do [ "$(running)" = 0 ] && break; sleep 0.1; done
    after=$(rss); timeout 5 head -c 100 <&9 | grep -q "200 OK"; rc=$?; exec 9<&- 9>&-
    echo "$before to $after KiB"; [ $rc = 0 ] && [ $((after - before)) -lt 16384 ]'

check "a megabyte of prompt does not hold up a stream" '
    { printf "{\"messages\":[{\"role\":\"user\",\"content\":\""; head -c 1048576 /dev/zero | tr "\\0" "a " ; printf "\"}]}"; } >long.json
    curl -sN -d "{$story,\"max_tokens\":60}" "$(url /v1/chat/completions)" >stream & streaming=$!
    until_running 1; start=$(date +%s%N); slowest=0
    curl -s -o longout -w "%{http_code}" --data-binary @long.json "$(url /v1/chat/completions)" >longcode & long=$!
    for _ in $(seq 30); do
        t=$(curl -s -o /dev/null -w "%{time_total}" "$(url /health/live)" | tr -d .); t=$((10#$t)); [ $t -gt $slowest ] && slowest=$t; done
    wait $long; wait $streaming; echo "slowest answer ${slowest} us"; is "$(cat longcode)" 400 && has longout context_length_exceeded && has stream "\[DONE\]" && [ $slowest -lt 300000 ]'
check "a long list of ids to read does not hold up others" '
    { printf "{\"tokens\":["; yes 65 | head -n 1500000 | paste -sd,; printf "]}"; } >long.json; slowest=0
    curl -s -o longout -w "%{http_code}" --data-binary @long.json "$(url /detokenize)" >longcode & long=$!
    while kill -0 $long 2>/dev/null; do
        t=$(curl -s -o /dev/null -w "%{time_total}" "$(url /health/live)" | tr -d .); t=$((10#$t)); [ $t -gt $slowest ] && slowest=$t; done
    echo "slowest answer ${slowest} us"; is "$(cat longcode)" 200 && [ $(wc -c <longout) -gt 1500000 ] && [ $slowest -lt 300000 ]'
check "texts whose senders have left are not read" '
    senders=""; for _ in $(seq 24); do curl -s -m 0.4 -o /dev/null --data-binary @long.json "$(url /detokenize)" & senders="$senders $!"; done; wait $senders
    head -c 20000 /dev/zero | tr "\0" a | sed "s/.*/{\"content\":\"&\"}/" >text.json; start=$(date +%s%N)
    is "$(status_of --data-binary @text.json "$(url /tokenize)")" 200; took=$((($(date +%s%N) - start) / 1000000)); echo "$took ms"; [ $took -lt 3000 ]'

check "a lost engine ends a stream with an error, not in silence" '
    curl -sN -d "{$story,\"max_tokens\":600}" "$(url /v1/chat/completions)" >out & streaming=$!; until_running 1; for _ in $(seq 200); do grep -q data: out && break; sleep 0.05; done
    kill -9 $engine_pid; wait $streaming; has out "^data: \{\"error\":\{\"message\":\"the engine is gone" && ! grep -q DONE out && has out "\"detail\":"'
check "then it is 503, and health says so" 'is "$(ask "{$hello}")" 503 && is "$(status_of "$(url /health)")" 503 && has body engine_lost && is "$(status_of "$(url /v1/models)")" 200'
serve_engine --cpu generic
check "an engine that comes back is used again" 'await /health/ready 200 && is "$(ask "{$hello}")" 200 && has body "37 . 48 = 85"'

check "requests are kept without their text" '
    status_of "$(url "/requests/recent?n=100")" >/dev/null; has body "\"status\":\"ok\"" && has body "\"finish_reason\":\"length\"" && ! grep -q "37 + 48" body &&
    status_of "$(url /requests/stats)" >/dev/null; has body "\"p95_latency_s\":[0-9]"'
check "the request log has one JSON line each, without text" 'has requests.jsonl "\"kind\":\"chat\"" && ! grep -q "fox" requests.jsonl access.jsonl api.log && ! grep -qvE "^\{.*\}$" requests.jsonl'
if command -v promtool >/dev/null; then
    check "promtool accepts the metrics, the engine's too" 'sleep 1.5; status_of "$(url /metrics)" >/dev/null; has body "^shoal_engine_steps_total [1-9]" && has body "^shoal_time_to_first_token_seconds_count [1-9]" && promtool check metrics <body'
else
    skip "promtool accepts the metrics, the engine's too" "promtool is missing (Debian package prometheus)"
fi

rm -f out # or what an earlier test left there is taken for the beginning of this answer
curl -sN -d "{$story,\"max_tokens\":40}" "$(url /v1/chat/completions)" >out & streaming=$!
for _ in $(seq 100); do grep -q data: out 2>/dev/null && break; sleep 0.05; done
kill -TERM "$api_pid"; sleep 0.3
check "while it stops it takes no new connections" '! curl -s -m 2 "$(url /health/live)"'
wait "$api_pid"; rc=$?; wait $streaming
check "a running answer finishes when it is asked to stop" 'is $rc 0 && has out "\[DONE\]"'
serve_api prompts --log-prompts && await /health/ready 200
check "a parser that does not exist is refused with the names of those that do" '
    exits 1 timeout 20 "$shoal" api --socket "$work/x.sock" --port 0 --tool-parser nope && grep -q "tool-call dialect .nope. is not one of none.*hermes" err &&
    exits 1 timeout 20 "$shoal" api --socket "$work/x.sock" --port 0 --reasoning-parser nope && grep -q "is not one of none.*think" err'
check "prompts are logged when asked for" 'is "$(ask "{$hello}")" 200 && has prompts.log "prompt: .*37 \+ 48"'
check "the API comes and goes while the engine keeps its model" 'is "$(grep -c "ready" engine.log)" 1'
stop "$api_pid"; stop "$engine_pid"
check "no part of it complained" '! grep -iE "assert|sanitizer|runtime error|leak" ./*.log'
done_testing
