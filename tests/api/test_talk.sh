#!/usr/bin/env bash
# `shoal chat` and `shoal generate` as clients of an engine of their own, and of a running server. Both must give the
# same tokens as HTTP.
. "$(dirname "$0")/lib.sh"
demo=$root/models/demo
if ! command -v jq >/dev/null; then skip "chat and generate are clients" "jq is missing"; done_testing; fi

key=a-key-that-only-this-test-knows-7f3a9c
export SHOAL_API_KEY=$key
serve_engine
serve_api api && for _ in $(seq 600); do
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $key" "$(url /v1/models)")" = 200 ] && break
    sleep 0.1
done
here() { "$shoal" generate --model "$demo" "$@"; }
there() { "$shoal" generate --url "http://127.0.0.1:$port" "$@"; }
ask="What is tensor parallelism?"
story="Tell me a story about a fox and a lantern."

# What must be the same either way: everything but times and the ids of calls.
essence() {
    jq -cS '[.text, .reasoning, .ids, .finish_reason, .prompt_tokens, .completion_tokens,
        ([.logprobs[] | . * 1e4 | round]), [(.tool_calls // [])[] | .function]]'
}
same_both_ways() { # flags of generate
    here --json "$@" 2>err | essence >here.out && there --json "$@" 2>err | essence >there.out &&
        [ -s here.out ] && cmp here.out there.out
}

stops() {
    is "$(here --chat "$ask" --stop "every layer" 2>err)" "Tensor parallelism splits " && has err ", stop$" &&
        is "$(here --chat "$ask" --stop '["nowhere", "machines", "across"]' 2>err)" \
            "Tensor parallelism splits every layer " &&
        same_both_ways --chat "$ask" --stop " rank holds" &&
        here --chat "$ask" --stop " rank holds" --json | jq -e '.completion_tokens > (.ids | length)' >/dev/null
}
check "a stop string ends the answer, even in the middle of a token" stops
stops_are_checked() {
    exits 1 here --chat x --stop '["a", 5]' && has err "JSON list of texts" &&
        exits 1 here --chat x --stop '[""]' && has err "none of them empty" &&
        is "$(here --prompt "[1" --max-tokens 1 --stop "[1" 2>&1 >/dev/null | grep -c tokens)" 1
}
check "invalid stop strings are refused, brackets alone are text" stops_are_checked

cat >tools.json <<'JSON'
[{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather of a city",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
JSON
weather="What is the weather in Oslo?"
calls() {
    is "$(here --chat "$weather" --tools tools.json 2>err | head -n 1)" 'get_weather {"city": "Oslo"}' &&
        has err "tool_calls" && same_both_ways --chat "$weather" --tools tools.json &&
        here --json --chat "$weather" --tools tools.json |
        jq -e '.finish_reason == "tool_calls" and .text == "" and .tool_calls[0].function.name == "get_weather"' \
            >/dev/null
}
check "a tool call is shown" calls
# A bad file is named; one that is not a list of functions is refused like HTTP does.
tools_are_checked() {
    exits 1 here --chat x --tools nowhere.json && has err "nowhere.json" &&
        echo '{}' >no.json && exits 1 here --chat x --tools no.json && has err "no.json: tools must be a list" &&
        echo '[{}]' >no.json && exits 1 here --chat x --tools no.json && has err "tools\[0\]"
}
check "invalid tools are refused" tools_are_checked
conversation() { # flags of chat
    printf '%s\n' "$weather" '/tool {"temperature": 7, "condition": "sunny"}' "/tool again" "/save c.json" |
        "$shoal" chat --tools tools.json "$@" >o 2>err
    has o '^get_weather ."city": "Oslo".$' && has o "^It is sunny in Oslo, at 7 degrees" &&
        has o "no tool call is waiting for a result" &&
        jq -e '.[1].tool_calls[0].id == .[2].tool_call_id
            and (.[1].tool_calls[0].function.arguments | fromjson.city) == "Oslo"
            and (map(.role) == ["user", "assistant", "tool", "assistant"])' c.json >/dev/null
}
chat_calls() { conversation --model "$demo" && conversation --url "http://127.0.0.1:$port"; }
check "chat accepts the result of a call and continues" chat_calls

# The demo model does not reason, but a prompt that opens the reasoning section makes all its output reasoning.
sed 's/<|im_start|>assistant\\n/&<think>/' "$demo/chat_template.jinja" >think.jinja
reasons() {
    here --template think.jinja --chat "$ask" --max-tokens 8 >o 2>err && [ "$(tr -d '\n' <o)" = "" ] &&
        [ "$(head -n 1 err | wc -c)" -gt 10 ] &&
        here --template think.jinja --chat "$ask" --max-tokens 8 --json |
        jq -e '.text == "" and (.reasoning | length) > 0 ' >/dev/null &&
        printf '%s\n/save r.json\n' "$ask" | "$shoal" chat --model "$demo" --template think.jinja --max-tokens 8 >o &&
        jq -e '.[1].content == "" and (.[1].reasoning_content | length) > 0' r.json >/dev/null
}
check "reasoning goes to standard error, and is kept separate from the content" reasons

# The same seed at a temperature where every token matters: with and without drafts, on several ranks, over HTTP.
sampled=(--chat "$story" --temperature 1.5 --top-p 0.98 --seed 11 --max-tokens 60)
drafts_same() {
    here --json "${sampled[@]}" | essence >want && [ -s want ] &&
        here --json "${sampled[@]}" --drafts 0 | essence | cmp - want &&
        here --json "${sampled[@]}" --draft-model "$demo" | essence | cmp - want &&
        here --json "${sampled[@]}" --ranks 2 | essence | jq -c '.[2]' >two && jq -c '.[2]' want | cmp - two
}
check "drafts and ranks change no token" drafts_same

# The same size, but another meaning of one token.
other_tokens() {
    cp -r "$demo" other && jq '.added_tokens[-1].content = "<|other|>"' "$demo/tokenizer.json" >other/tokenizer.json &&
        ! here --prompt hello --max-tokens 2 --draft-model other >o 2>err &&
        grep -F "token 4095 is '<|other|>' there and '</think>' here" err >/dev/null && return
    cat err; return 1
}
check "a draft model with another vocabulary is refused, by the token that differs" other_tokens
mtp_missing() {
    ! here --prompt hello --max-tokens 2 --draft-model mtp >o 2>err &&
        grep -F "models of the family qwen3 have no multi-token-prediction layer" err >/dev/null && return
    cat err; return 1
}
check "a model without a multi-token-prediction layer cannot draft with it" mtp_missing
http_same() {
    same_both_ways "${sampled[@]}" && same_both_ways --prompt "Once upon a time" --max-tokens 20 &&
        same_both_ways --ids 4086,285,198 --max-tokens 12 --temperature 1 --seed 3 &&
        jq -n --arg story "$story" '{messages: [{role: "user", content: $story}], temperature: 1.5, top_p: 0.98,
            top_k: 0, repetition_penalty: 1, seed: 11, max_tokens: 60, return_token_ids: true}' |
        curl -s -H "Authorization: Bearer $key" --data-binary @- "$(url /v1/chat/completions)" |
        jq -c '.choices[0].token_ids' >http.ids && here --json "${sampled[@]}" | jq -c .ids | cmp - http.ids
}
check "generate gives the same tokens as HTTP, with --url and without" http_same
# Sampling defaults of a chat come from the model, as over HTTP; here it recommends 0.7 and 0.9.
chat_same() {
    printf '%s\n/save c.json\n' "$story" | "$shoal" chat --model "$demo" --seed 5 --max-tokens 40 >/dev/null &&
        jq -n --arg story "$story" '{messages: [{role: "user", content: $story}], seed: 5, max_tokens: 40}' |
        curl -s -H "Authorization: Bearer $key" --data-binary @- "$(url /v1/chat/completions)" |
        jq -r '.choices[0].message.content' >want && jq -r '.[1].content' c.json | cmp - want
}
check "chat samples like HTTP when nothing is specified" chat_same
cached() {
    printf '%s\n%s\n' "$story" "And then?" | "$shoal" chat --url "http://127.0.0.1:$port" --max-tokens 40 >/dev/null &&
        curl -s -H "Authorization: Bearer $key" "$(url /requests/recent)" |
        jq -e '[.. | objects | .cached_tokens? // empty] | any(. >= 32)' >/dev/null
}
check "earlier turns come from the cache" cached

refusals() {
    exits 3 "$shoal" generate --url "http://127.0.0.1:$(free_port)" --chat x && has err "does not answer" &&
        exits 1 env -u SHOAL_API_KEY "$shoal" generate --url "http://127.0.0.1:$port/v1/" --chat x &&
        has err "status 401" && exits 1 there --ids 1,x && has err "'x' is not a token id" &&
        exits 1 there --ids 999999 && has err "status 400: .*vocabulary" &&
        exits 1 there --chat x --model-name other && has err "'other' is not served here" &&
        exits 2 there --model "$demo" --chat x && has err "not both" &&
        exits 2 "$shoal" generate --chat x && has err "needs --model, or --url"
}
check "what a server refuses is reported, with an exit code" refusals
flag_wins() { is "$(SHOAL_MODEL=nowhere there --chat "What is 3 + 4?" 2>err)" "3 + 4 = 7"; }
check "--url takes precedence over a model from the environment" flag_wins
chat_outlives() {
    printf '%s\n' "/load c.json" "What is 2 + 2?" >in
    echo '[{"role": "alien", "content": "x"}]' >c.json
    "$shoal" chat --url "http://127.0.0.1:$port" <in >o && has o "status 400: .*alien" &&
        "$shoal" chat --model "$demo" <in >o && has o "messages\[0\].role. must be one of"
}
check "a refused question leaves the chat running" chat_outlives

if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.pem -days 2 -subj /CN=x \
        -addext "subjectAltName=IP:127.0.0.1" 2>/dev/null
    plain=$port
    serve_api tls --tls-cert tls.pem --tls-key tls.key && tls_url=https://127.0.0.1:$port port=$plain
    over_tls() {
        is "$("$shoal" generate --url "$tls_url" --tls-cert tls.pem --chat "What is 3 + 4?" 2>err)" "3 + 4 = 7" &&
            exits 1 "$shoal" generate --url "$tls_url" --chat x && has err "not trusted: self-signed"
    }
    check "https is verified with the given certificate" over_tls
else
    skip "https is verified with the given certificate" "openssl is missing"
fi

# An end-of-text token that the model never generates, so that an answer does not end.
mkdir endless && cp "$demo"/* endless && rm endless/generation_config.json
sed -i -E 's/("eos_token_id": *)[0-9]+/\14095/' endless/config.json
sed -i 's/<|im_end|>/<|none|>/' endless/tokenizer_config.json
wait_for() { for _ in $(seq 600); do grep -q "$1" "${2:-o}" && return; sleep 0.05; done; return 1; }
"$shoal" engine --model endless --cpu generic --socket "$work/endless.sock" 2>endless.log & pids+=("$!")
"$shoal" api --socket "$work/endless.sock" --port 0 2>endless-api.log & endless_api=$!; pids+=("$endless_api")
wait_for "serving" endless-api.log
endless_url=http://127.0.0.1:$(sed -nE 's/.*listening on https?:.*:([0-9]+)$/\1/p' endless-api.log)

# Starts an endless answer, runs the action once it has begun, and returns the exit code.
amid_answer() { # action, flags of generate
    local act=$1 pid; shift
    : >o # or the previous answer would be taken for this one
    "$shoal" generate "$@" --max-tokens 100000 --chat "$ask" >o 2>err & pid=$!
    wait_for splits && $act $pid
    wait $pid
}
ctrl_c() { kill -INT "$1"; }
interrupts() {
    amid_answer ctrl_c --model endless --cpu generic; is $? 130 && has err "interrupted$" &&
        { amid_answer ctrl_c --url "$endless_url"; is $? 130; } && has err "interrupted$"
}
check "Ctrl-C stops the answer of generate and says so" interrupts
# Without waiting for the rank to come back, as a server would.
rank_dies() { kill -9 "$(pgrep -P "$1" | tail -n 1)"; lost_ms=$(date +%s%3N); }
rank_gone() {
    amid_answer rank_dies --model endless --cpu generic --ranks 2
    local took=$(($(date +%s%3N) - lost_ms))
    has err "rank 1 at .* was lost" && { [ $took -lt 3000 ] || { echo "$took ms"; return 1; }; }
}
check "a lost rank ends generate at once" rank_gone
server_dies() { kill -9 "$endless_api"; }
server_gone() { amid_answer server_dies --url "$endless_url"; is $? 3 && has err "during its answer"; }
check "a server that is gone in the middle of an answer is named" server_gone
done_testing
