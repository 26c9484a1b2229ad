#!/usr/bin/env bash
# Commands that look at, make and run models, as a shell sees them.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal demo=$root/models/demo data=$root/tests/data/models
cd "$(mktemp -d)" || exit 1
want="Tensor parallelism splits every layer across the machines. Each rank holds a share of the attention heads and of the feed-forward neurons, computes its partial result, and an all-reduce adds the partial results together after each block."
ask() { "$shoal" generate --model "$demo" --chat "What is tensor parallelism?" "$@"; }

check "generate gives the golden answer" '[ "$(ask)" = "$want" ]'
check "two ranks give the same" '[ "$(ask --ranks 2)" = "$want" ]'
check "two stages give the same" '[ "$(ask --ranks 2 --parallel pipeline)" = "$want" ]'
check "--json has ids, reason and usage" 'ask --json >j && grep -q "\"finish_reason\":.*\"stop\"" j && grep -q "\"completion_tokens\":.*43" j && grep -q "\"ids\":.*1549, 823" j'
check "max-tokens cuts" '[ "$(ask --max-tokens 4)" = "Tensor parallelism splits every" ]'
check "ids go in as they are" '[ "$("$shoal" generate --model "$demo" --ids 4086,285,198,384,298,1456,823,30,4087,198,4086,286,198)" = "$want" ]'
check "the same seed gives the same answer" '[ "$(ask --temperature 2 --seed 5)" = "$(ask --temperature 2 --seed 5)" ]'
check "another seed gives another" '[ "$(ask --temperature 2 --seed 5)" != "$(ask --temperature 2 --seed 6)" ]'
check "two prompts at once exit 2" 'exits 2 ask --prompt x && grep -q "one of --prompt, --chat, --ids" err'
check "ids out of range are named" 'exits 1 "$shoal" generate --model "$demo" --ids 1,4096 && grep -q "4096. is not a token id from 0 to 4095" err'
check "a model without tokenizer still takes ids" '"$shoal" generate --model "$data/llama-4bit" --ids 5,6 --max-tokens 3 | grep -qE "^[0-9]+,[0-9]+,[0-9]+$"'
check "and says so when it is asked for text" 'exits 1 "$shoal" generate --model "$data/llama-4bit" --prompt hello && grep -q "no tokenizer.json" err'
check "a folder that is not there is named" 'exits 1 "$shoal" generate --model nowhere --ids 1 && grep -q nowhere err'

check "logits are a safetensors file" '"$shoal" logits --model "$demo" --ids 4086,285,198 --out l.safetensors && head -c 120 l.safetensors | grep -aq "\"logits\":{\"dtype\":\"F32\",\"shape\":\[3,4096\]"'
check "logits need ids" 'exits 2 "$shoal" logits --model "$demo"'
check "info tells what a model is" '"$shoal" info --model "$demo" | grep -q "^family *qwen3" && "$shoal" info --model "$demo" --json | grep -q "\"kv_bytes_per_token\":.*8192"'
check "info of what is no model is one line" 'exits 1 "$shoal" info --model "$root/src" && [ "$(wc -l <err)" = 1 ]'

check "synth makes a model of a given config, with a tokenizer" '"$shoal" synth --shape "$data/llama-4bit/config.json" --out made && "$shoal" generate --model made --ids 1,2,3 --max-tokens 4 --json | grep -qE "ids.*[0-9]+,"
    [ "$(echo "Hello wörld" | "$shoal" tokenize --model made | "$shoal" tokenize --model made --decode)" = "Hello wörld" ]'
check "an unknown shape lists the known ones" 'exits 1 "$shoal" synth --shape gpt-9 --out x && grep -q "qwen3-0.6b, llama-3.2-1b" err'
check "bits that do not exist are refused" 'exits 1 "$shoal" synth --shape qwen3-0.6b --bits 7 --out x && grep -q "2, 3, 4, 5, 6, 8 or 16" err'

check "bench tells speed, memory and share of the machine" '"$shoal" bench --model made --prompt 40 --generate 8 --rounds 2 --profile >o 2>e && grep -q "^prompt *40 tokens: " o && grep -q "of what this machine read beside it" o && grep -q "  matmul" e'
check "bench in JSON, on two ranks" '"$shoal" bench --model made --prompt 40 --generate 8 --rounds 1 --json --ranks 2 | grep -q "\"bytes_per_token\""'

check "chat answers, undoes and saves" 'printf "What is 3 + 4?\n/undo\nWhat is 2 + 2?\n/save c.json\n" | "$shoal" chat --model "$demo" >o && grep -q "3 + 4 = 7" o && grep -q "2 + 2 = 4" o && ! grep -q "3 + 4" c.json'
check "chat says what it does not know" 'echo /foo | "$shoal" chat --model "$demo" | grep -q "/foo is not known"'
# The demo model with an end of text that it never says, so that an answer lasts.
endless() {
    mkdir endless && cp "$demo"/* endless
    rm endless/generation_config.json
    sed -i -E 's/("eos_token_id": *)[0-9]+/\14095/' endless/config.json
}
# Waits until the answer has begun, and not for its end.
wait_for() { for _ in $(seq 600); do grep -q "$1" o && return; sleep 0.05; done; return 1; }
interrupt_answer() {
    mkfifo in; "$shoal" chat --model endless --cpu generic --max-tokens 4000 <in >o 2>e & local pid=$!
    exec 3>in; echo "What is tensor parallelism?" >&3
    wait_for splits; kill -INT $pid
    wait_for "; stopped" || return 1
    kill -INT $pid; sleep 0.1
    echo "/nonsense" >&3; exec 3>&-
    wait $pid && grep -q "/nonsense is not known" o
}
endless
check "Ctrl-C ends an answer, and neither at work nor at rest the chat" interrupt_answer
done_testing
