#!/usr/bin/env bash
# `shoal tokenize` and `shoal bench text` as a shell sees them.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal data=$root/tests/data/tokenizers
cd "$(mktemp -d)" || exit 1
tok() { "$shoal" tokenize --tokenizer "$data/$1.json" "${@:2}"; }

check "text is an argument or comes on standard input" '[ "$(tok gpt2 "Hello world")" = "$(printf "Hello world" | tok gpt2)" ]'
check "ids are a JSON list" 'tok gpt2 "Hello world" | grep -qE "^\[[0-9]+(,[0-9]+)*\]$"'
check "an empty text has no ids" '[ "$(tok gpt2 "")" = "[]" ]'
check "a model's folder will do" '"$shoal" tokenize --model "$root/models/demo" Hello | grep -qE "^\[[0-9]"'
check "special tokens are added, and left out with --no-special" \
    'a=$(tok llama3 hi) b=$(tok llama3 --no-special hi); [ "$a" = "[1203,${b#[}" ]'
check "decoding gives the text back, byte for byte" \
    'printf "a \xe4\xb8\xad\xe6\x96\x87\t\xf0\x9f\x99\x82 \n" >text && tok gpt2 <text >ids && tok gpt2 --decode <ids | cmp - text'
check "decoding leaves special tokens out with --no-special" '[ "$(tok llama3 --decode --no-special "[1203,71,72]")" = hi ]'
check "pieces are shown beside ids" 'tok gpt2 --pieces " a\"b" | grep -qF "\"\\\"\"]"'
check "--jsonl answers each line" '[ "$(printf "\"a\"\n\"b\\\\n\"\n" | tok gpt2 --jsonl | wc -l)" = 2 ]'
check "--jsonl goes both ways" \
    'printf "\"a\\\\u0007\\\\\"\"\n" | tok gpt2 --jsonl | tok gpt2 --jsonl --decode | grep -qxF "\"a\\u0007\\\"\""'
check "neither model nor tokenizer exits 1 and says so" 'exits 1 "$shoal" tokenize hi && grep -q -- "--tokenizer FILE" err'
check "a missing file exits 1 and is named" 'exits 1 "$shoal" tokenize --tokenizer nowhere.json hi && grep -q "nowhere.json" err'
check "a file that is cut exits 1 with one line that has the place" \
    'head -c 900 "$data/gpt2.json" >cut.json; exits 1 "$shoal" tokenize --tokenizer cut.json hi && [ "$(wc -l <err)" = 1 ] && grep -q "cut.json.*line 1, column" err'
check "an unknown part exits 1 and is named" \
    'sed "s/\"type\":\"BPE\"/\"type\":\"Unigram\"/" "$data/gpt2.json" >u.json; exits 1 "$shoal" tokenize --tokenizer u.json hi && grep -q "model .Unigram. is not supported" err'
check "ids out of range exit 1" 'exits 1 "$shoal" tokenize --tokenizer "$data/gpt2.json" --decode "[1,99999]" && grep -q "from 0 to 1206, not 99999" err'
check "ids that are none exit 1" 'exits 1 "$shoal" tokenize --tokenizer "$data/gpt2.json" --decode "[1,\"x\"]" && exits 1 "$shoal" tokenize --tokenizer "$data/gpt2.json" --decode "{}"'
check "text that is not UTF-8 exits 1 with its place" 'printf "ab\xff" >bad; ! tok gpt2 <bad 2>err && grep -q "byte 2" err'
check "a line that is not JSON exits 1 and is named" 'printf "\"a\"\n\n" | tok gpt2 --jsonl 2>err; [ $? = 1 ] && grep -q "line 2" err'
case $SHOAL_BUILD in
*/release) check "bench text prints CSV" '"$shoal" bench text --rounds 1 --tokenizer "$data/gpt2.json" | awk -F, "NR > 1 && NF != 5 {exit 1} END {exit NR < 20}"' ;;
*) skip "bench text prints CSV" "it takes minutes in this build" ;;
esac
check "bench without a name exits 2" 'exits 2 "$shoal" bench'
done_testing
