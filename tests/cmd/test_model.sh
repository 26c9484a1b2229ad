#!/usr/bin/env bash
# Commands that inspect, create and run models.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal demo=$root/models/demo data=$root/tests/data/models
scratch
want="Tensor parallelism splits every layer across the machines. Each rank holds a share of the attention heads and of \
the feed-forward neurons, computes its partial result, and an all-reduce adds the partial results together after each \
block."
generate() { "$shoal" generate --model "$demo" "$@"; }
ask() { generate --chat "What is tensor parallelism?" "$@"; }

check "generate gives the golden answer" gives "$want" ask
check "two ranks give the same" gives "$want" ask --ranks 2
check "two stages give the same" gives "$want" ask --ranks 2 --parallel pipeline
json() {
    ask --json >j && grep -q '"finish_reason":.*"stop"' j && grep -q '"completion_tokens":.*43' j &&
        grep -q '"ids":.*1549, 823' j
}
check "--json has ids, reason and usage" json
check "--max-tokens limits the answer" gives "Tensor parallelism splits every" ask --max-tokens 4
check "ids are used as they are" gives "$want" generate --ids 4086,285,198,384,298,1456,823,30,4087,198,4086,286,198
seeded() { ask --temperature 2 --seed "$1" 2>/dev/null; }
check "the same seed gives the same answer" gives "$(seeded 5)" seeded 5
check "another seed gives another answer" not gives "$(seeded 5)" seeded 6
check "two prompts at once exit 2" refuses 2 "one of --prompt, --chat, --ids" ask --prompt x
check "ids out of range are named" refuses 1 "4096. is not a token id from 0 to 4095" generate --ids 1,4096
check "a model without a tokenizer still accepts ids" prints '^[0-9]+,[0-9]+,[0-9]+$' \
    generate --model "$data/llama-4bit" --ids 5,6 --max-tokens 3
check "and reports it when it is given text" refuses 1 "no tokenizer.json" \
    generate --model "$data/llama-4bit" --prompt hello
check "a missing folder is named" refuses 1 nowhere generate --model nowhere --ids 1

logits() {
    "$shoal" logits --model "$demo" --ids 4086,285,198 --out l.safetensors &&
        head -c 120 l.safetensors | grep -aq '"logits":{"dtype":"F32","shape":\[3,4096\]'
}
check "logits are a safetensors file" logits
check "logits need ids" exits 2 "$shoal" logits --model "$demo"
info() {
    prints '^family *qwen3' "$shoal" info --model "$demo" &&
        prints '"kv_bytes_per_token":.*8192' "$shoal" info --model "$demo" --json
}
check "info describes a model" info
info_conv() {
    local model=$root/tests/data/models/lfm2-long-4bit
    prints 'a convolution over 4 tokens in 2 layers' "$shoal" info --model "$model"
}
check "info names layers with a convolution" info_conv
no_model() { exits 1 "$shoal" info --model "$root/src" && [ "$(wc -l <err)" = 1 ]; }
check "info about something that is not a model is one line" no_model

there_and_back() { echo "$1" | "$shoal" tokenize --model made | "$shoal" tokenize --model made --decode; }
synth() {
    "$shoal" synth --shape "$data/llama-4bit/config.json" --out made &&
        prints 'ids.*[0-9]+,' generate --model made --ids 1,2,3 --max-tokens 4 --json &&
        gives "Hello wörld" there_and_back "Hello wörld"
}
check "synth creates a model from a given config, with a tokenizer" synth
check "an unknown shape lists the known ones" refuses 1 "qwen3-0.6b, llama-3.2-1b" "$shoal" synth --shape gpt-9 --out x
check "unsupported bits are refused" refuses 1 "2, 3, 4, 5, 6, 8 or 16" \
    "$shoal" synth --shape qwen3-0.6b --bits 7 --out x

bench() { "$shoal" bench --model made --prompt 40 --generate 8 "$@"; }
bench_text() {
    bench --rounds 2 --profile >o 2>e && grep -q "^prompt *40 tokens: " o &&
        grep -q "of what this machine read next to it" o && grep -q "  matmul" e
}
check "bench reports speed, memory and share of the machine's peak" bench_text
check "bench in JSON, on two ranks" prints '"bytes_per_token"' bench --rounds 1 --json --ranks 2

chat() {
    printf 'What is 3 + 4?\n/undo\nWhat is 2 + 2?\n/save c.json\n' | "$shoal" chat --model "$demo" >o &&
        grep -q "3 + 4 = 7" o && grep -q "2 + 2 = 4" o && ! grep -q "3 + 4" c.json
}
check "chat answers, undoes and saves" chat
unknown() { echo /foo | "$shoal" chat --model "$demo" | grep -q "no command /foo"; }
check "chat says what it does not know" unknown
# The demo model with an end of text that it never says, so that an answer lasts.
endless() {
    mkdir endless && cp "$demo"/* endless
    rm endless/generation_config.json
    sed -i -E 's/("eos_token_id": *)[0-9]+/\14095/' endless/config.json
}
interrupt_answer() {
    mkfifo in; "$shoal" chat --model endless --cpu generic --max-tokens 4000 <in >o 2>e & local pid=$!
    exec 3>in; echo "What is tensor parallelism?" >&3
    within 30 grep -q splits o; kill -INT $pid # the answer has begun, but not ended
    within 30 grep -q "; stopped" o || return 1
    kill -INT $pid; sleep 0.1
    echo "/nonsense" >&3; exec 3>&-
    wait $pid && grep -q "no command /nonsense" o
}
endless
check "Ctrl-C stops an answer, but does not end the chat, during an answer or at the prompt" interrupt_answer
done_testing
