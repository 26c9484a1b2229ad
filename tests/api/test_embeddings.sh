#!/usr/bin/env bash
# Embeddings and reranking over HTTP, with the tiny models of tests/data/encoders: the results are those of
# sentence-transformers, and what a model cannot do is refused by name.
. "$(dirname "$0")/lib.sh"
if ! command -v jq >/dev/null; then skip "vectors are those of sentence-transformers" "jq is missing"; done_testing; fi
models=$root/tests/data/encoders

serve_model() { # NAME FLAGS...: sets $port and $serve_pid
    port=$(free_port)
    "$shoal" serve --model "$models/$1" --port "$port" --runtime-dir "$work" --activations f32 --kv-reserve-mb 0 \
        "${@:2}" >"$1.log" 2>&1 &
    serve_pid=$!; pids+=("$serve_pid")
    await /health/ready 200 || { echo "Bail out! no server"; cat "$1.log"; exit 1; }
}
post() { # STATUS PATH BODY
    is "$(printf '%s' "$3" | status_of --data-binary @- "$(url "$2")")" "$1"
}
refused() { # PATH BODY TEXT: with 400, and the text in the message
    post 400 "$1" "$2" && has body "$3"
}
# near FILTER: the numbers that the filter makes of [golden, body], in pairs, differ by less than 1e-5
near() {
    local far='map((.[0] - .[1]) | if . < 0 then -. else . end) | length > 0 and (max < 1e-5)'
    jq -es "$1 | $far" golden.json body >/dev/null || { echo "too far off:"; head -c 300 body; return 1; }
}
vectors_match() {
    post 200 /v1/embeddings "$(jq -c '{input: .texts}' golden.json)" &&
        near '[.[0].embeddings, [.[1].data[].embedding]] | map(flatten) | transpose' &&
        is "$(jq -c '[.object, .usage.prompt_tokens, (.data | map(.index))]' body)" \
            "$(jq -c '["list", (.ids | flatten | length), [range(.ids | length)]]' golden.json)"
}
ids_match() {
    post 200 /v1/embeddings "$(jq -c '{input: .ids}' golden.json)" &&
        near '[.[0].embeddings, [.[1].data[].embedding]] | map(flatten) | transpose' &&
        post 200 /v1/embeddings "$(jq -c '{input: .ids[1]}' golden.json)" &&
        near '[.[0].embeddings[1], .[1].data[0].embedding] | transpose'
}
base64_matches() {
    post 200 /v1/embeddings "$(jq -c '{input: .texts[0], encoding_format: "base64"}' golden.json)" || return
    jq -r '.data[0].embedding' body | base64 -d | od -A n -t f4 -w4 | jq -s '{data: [{embedding: .}]}' >numbers
    mv numbers body
    near '[.[0].embeddings[0], .[1].data[0].embedding] | transpose'
}
prompt_matches() {
    post 200 /v1/embeddings "$(jq -c '{input: .texts[0], prompt_name: "query"}' golden.json)" &&
        near '[.[0].prompted.query, .[1].data[0].embedding] | transpose'
}
many_match() { # more inputs than the engine has slots and the job asks for at once
    post 200 /v1/embeddings "$(jq -c '{input: [range(500) as $i | .texts[$i % 5]]}' golden.json)" &&
        is "$(jq '[.data | group_by(.index % 5)[] | map(.embedding) | unique | length] | max' body)" 1 &&
        is "$(jq '.data | length' body)" 500
}
long_is_cut() {
    local long; long=$(printf 'fish %.0s' $(seq 300))
    refused /v1/embeddings "{\"input\":[\"x\",\"$long\"]}" "'input\[1\]' has 302 tokens; the model takes at most 128" &&
        post 200 /v1/embeddings "{\"input\":[\"x\",\"$long\"],\"truncate_prompt_tokens\":-1}" &&
        is "$(jq .usage.prompt_tokens body)" 131
}
scores_match() {
    jq -c '{query: .pairs[0][0], documents: [.pairs[0][1], {text: .pairs[1][1]}]}' golden.json >request
    post 200 /v1/rerank "$(cat request)" &&
        near '[.[0].scores[0:2], (.[1].results | sort_by(.index) | map(.relevance_score))] | transpose' &&
        is "$(jq '.results | map(.relevance_score) | . == (sort | reverse)' body)" true &&
        is "$(jq -r '.results[] | select(.index == 1).document.text' body)" "$(jq -r '.pairs[1][1]' golden.json)"
}
tasks_are_named() {
    gets 200 /model/info && is "$(jq -c '[.tasks, .embedding_dimensions]' body)" '[["embed"],32]' &&
        post 200 /api/show '{"model":"default"}' && is "$(jq -c .capabilities body)" '["embedding"]'
}
top_is_one() {
    post 200 /rerank '{"query":"x","documents":["x","y"],"top_n":1,"return_documents":false}' &&
        is "$(jq -c '.results | map(keys)' body)" '[["index","relevance_score"]]'
}

cp "$models/bert-mean/golden.json" .
serve_model bert-mean --ranks 2
check "vectors are those of sentence-transformers" vectors_match
check "token ids give the same" ids_match
check "base64 holds the same numbers" base64_matches
check "a prompt of the model goes before a text" prompt_matches
check "hundreds of inputs are answered in their order" many_match
check "a text that is too long is refused with its length, or cut" long_is_cut
check "what is wrong with an input is said with its index" \
    refused /v1/embeddings '{"input":["x",[1,99999]]}' "'input\[1\]' contains token id 99999"
check "vectors are not shortened unless the model allows it" \
    refused /v1/embeddings '{"input":"x","dimensions":8}' "can be shortened"
check "an unknown prompt is refused with those that there are" \
    refused /v1/embeddings '{"input":"x","prompt_name":"no"}' "document, passage, query"
check "a chat is refused by a model that makes embeddings" \
    refused /v1/chat/completions '{"messages":[{"role":"user","content":"x"}]}' "makes embeddings: use /v1/embeddings"
check "so is reranking" refused /v1/rerank '{"query":"x","documents":["x"]}' "makes embeddings"
check "the model says what it can do" tasks_are_named
stop "$serve_pid"

cp "$models/bert-rerank/golden.json" .
serve_model bert-rerank
check "scores are those of a cross-encoder" scores_match
check "the best documents alone are reported" top_is_one
check "a model that scores pairs makes no embeddings" refused /v1/embeddings '{"input":"x"}' "use /v1/rerank"
stop "$serve_pid"
check "the logs have no complaint" no_complaint bert-mean.log bert-rerank.log
done_testing
