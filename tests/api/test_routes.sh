#!/usr/bin/env bash
# The smaller promises of the API: keys with names and limits, defaults of the server, prompts that are scored or go on,
# and the endpoints that clients of vLLM expect. One server for all.
. "$(dirname "$0")/lib.sh"

alice=sk-alice-4fZq81Lx0p2s bob=sk-bob-7hWm29Kc5r8t carol=sk-carol-9kPq35Nv1w7z dora=sk-dora-2bTy64Gh8m3q
digest=$(printf %s $carol | sha256sum | cut -d' ' -f1)
keys() { # [MORE LINES...]
    printf '%s\n' "# ours" "{\"name\":\"alice\",\"key\":\"$alice\"}" \
        "{\"name\":\"bob\",\"key\":\"$bob\",\"requests_per_minute\":2,\"tokens_per_minute\":100000}" \
        "{\"name\":\"carol\",\"sha256\":\"$digest\",\"models\":[\"another\"]}" \
        "{\"name\":\"dora\",\"key\":\"$dora\",\"expires\":\"2020-01-31\"}" "$@" >keys.new
    mv keys.new keys
}
keys
serve_api api --api-key-file keys --request-log requests.jsonl --temperature 0 --top-k 7 --max-tokens 19 --seed 3 ||
    { echo "Bail out!"; cat api.log; exit 1; }
serve_engine
await /health/ready 200 || { echo "Bail out! no engine"; cat engine.log; exit 1; }

as() { gets "$2" "$3" -H "Authorization: Bearer $1" "${@:4}"; } # KEY STATUS PATH [flags of curl]
chat=/v1/chat/completions
hello='{"messages":[{"role":"user","content":"What is 37 + 48?"}]}'
completes() { as $alice "$1" /v1/completions -d "$2"; } # STATUS BODY

named() {
    as $alice 200 $chat -d "$hello" && has body "37 . 48 = 85" && has requests.jsonl '"key":"alice"' &&
        as $alice 200 /metrics && has body 'shoal_key_requests_total\{key="alice"\} 1' &&
        has body 'shoal_key_prompt_tokens_total\{key="alice"\} 18' &&
        has body 'shoal_key_generated_tokens_total\{key="alice"\} [1-9]'
}
check "usage is counted by the name of the key" named
limited() {
    as $bob 200 $chat -d "$hello" && has head '^x-ratelimit-limit-requests: 2' &&
        has head '^x-ratelimit-remaining-requests: 1' && has head '^x-ratelimit-reset-requests: 30s' &&
        has head '^x-ratelimit-limit-tokens: 100000' && as $bob 200 $chat -d "$hello" &&
        as $bob 429 $chat -d "$hello" && has head '^retry-after: [0-9]+' && has body '"code":"rate_limit_exceeded"' &&
        has body "'bob' has used its 2 requests a minute" && as $bob 200 /v1/models && as $alice 200 $chat -d "$hello"
}
check "a key that has used its requests gets 429 and is told when to come back, others do not" limited
barred() {
    as $carol 403 $chat -d "$hello" && has body "'carol' may not use the model 'demo'" &&
        as $carol 403 /tokenize -d '{"content":"x"}' && has body "'carol' may not use the model 'demo'" &&
        as $dora 401 $chat -d "$hello" && has body "expired" &&
        as sk-none-4fZq81Lx0p2s 401 $chat -d "$hello" && has body "valid API key"
}
check "a key for other models is 403, one that has expired 401" barred

reloads() {
    local before
    before=$(grep -c "reload finished" api.log)
    kill -HUP "$api_pid" && within 10 reloaded "$before"
}
reloaded() { [ "$(grep -c "reload finished" api.log)" -gt "$1" ]; }
kept() {
    keys '{"name":"eve","key":"sk-eve-6nRw93Vc0d5k","request_per_minute":1}' && reloads &&
        has api.log "keeping the old API keys: keys, line 6: .*no member request_per_minute" && as $alice 200 /v1/models
}
check "a file with a mistake is reported on SIGHUP, and the old keys stay" kept
renewed() {
    keys "{\"name\":\"eve\",\"key\":\"sk-eve-6nRw93Vc0d5k\"}" && sed -i '/alice/d' keys && reloads &&
        as sk-eve-6nRw93Vc0d5k 200 /v1/models && as $alice 401 /v1/models && as $bob 200 /v1/models &&
        keys && reloads && as $alice 200 /v1/models
}
check "a good one is in force at once" renewed

defaults() {
    as $alice 200 /settings &&
        has body '"defaults":\{"temperature":0,"top_p":0.9,"top_k":7,"min_p":0,"repetition_penalty":1,' &&
        has body '"seed":3,"max_tokens":19\}'
}
check "the server's defaults come after the request's and before the model's" defaults
ignored() {
    completes 200 '{"prompt":"The fox","temprature":1,"max_tokens":1}' &&
        has head '^x-shoal-ignored-fields: temprature' &&
        completes 200 '{"prompt":"The fox","max_tokens":1,"user":"a"}' && ! has head '^x-shoal-ignored' >/dev/null
}
check "misspelt fields are named in a header" ignored

# What lm-eval sends to score a text, with an answer of one token or of none.
scored() {
    completes 200 '{"prompt":"The fox and a lantern","max_tokens":1,"echo":true,"logprobs":1}' && cp body one &&
        has body '"text":"The fox and a lantern\."' && has body '"token_logprobs":\[null(,-[0-9.]+){4},-[0-9.e-]+\]' &&
        has body '"top_logprobs":\[null,\{"' && has body '"text_offset":\[0,3,7,11,13,21\]' &&
        completes 200 '{"prompt":"The fox and a lantern","max_tokens":0,"echo":true,"logprobs":1,"stream":true}' &&
        has body '"text":"The fox and a lantern"' && has body '"finish_reason":"length"' &&
        same_scores one body && completes 200 '{"prompt":[4087],"max_tokens":1,"echo":true,"logprobs":1}' &&
        has body '"completion_tokens":1'
}
scores() { grep -oE '"token_logprobs":\[[^]]*' "$1" | grep -oE -- '(null|-[0-9.]+)' | head -n 5; } # FILE
same_scores() { diff <(scores "$1") <(scores "$2"); }
check "echo with logprobs scores the prompt, whether or not it is cached" scored
continued() {
    local begun='{"messages":[{"role":"user","content":"What is 37 + 48?"},{"role":"assistant","content":"37 + 48 ="}]'
    as $alice 200 $chat -d "$begun}" && has body '"content":" 85"' &&
        as $alice 200 $chat -d "$begun,\"guided_regex\":\"37 . 48 = [0-9]{3}\"}" && has body '"content":" [0-9]{3}"' &&
        as $alice 400 $chat -d "$begun,\"guided_regex\":\"[a-z]+\"}" && has body "does not match the grammar" &&
        as $alice 200 /apply-template -d "$begun}" && has body '37 . 48 ="\}$' &&
        as $alice 200 /apply-template -d "$begun,\"add_generation_prompt\":true}" && has body 'assistant.n"\}$'
}
check "a final message of the assistant goes on, also in a form" continued
refused() { completes 400 '{"prompt":"a","suffix":"b"}' && has body "'demo' cannot fill in the middle"; }
check "suffix is refused by a model without the tokens for it" refused

vllm() {
    as $alice 200 /version && has body '"version":"[0-9.]+"' && as $alice 200 /load && has body '"server_load":0' &&
        as $alice 200 /v1/models/demo && has body '"object":"model"' && as $alice 404 /v1/models/other &&
        as $alice 200 /tokenize -d '{"prompt":"The fox","return_token_strs":true}' && has body '"count":2' &&
        has body '"token_strs":\["The"," fox"\]' && as $alice 200 /tokenize -d "$hello" && has body '"count":18' &&
        as $alice 200 /detokenize -d '{"tokens":[378,1351]}' && has body '"prompt":"The fox"'
}
check "vLLM's endpoints answer its clients" vllm

stop "$api_pid"; stop "$engine_pid"
secret() { ! grep -lE "4fZq81Lx0p2s|7hWm29Kc5r8t|9kPq35Nv1w7z|2bTy64Gh8m3q|6nRw93Vc0d5k" ./*.log requests.jsonl; }
check "no key is in any log" secret
check "nothing complained" no_complaint ./*.log
done_testing
