#!/usr/bin/env bash
# `shoal tokenize` and `shoal bench text` from the shell.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal data=$root/tests/data/tokenizers
scratch
tok() { "$shoal" tokenize --tokenizer "$data/$1.json" "${@:2}"; }
tokenize() { "$shoal" tokenize --tokenizer "$@"; }

from_input() { [ "$(tok gpt2 "Hello world")" = "$(printf 'Hello world' | tok gpt2)" ]; }
check "text is an argument or comes on standard input" from_input
check "ids are a JSON list" prints '^\[[0-9]+(,[0-9]+)*\]$' tok gpt2 "Hello world"
check "an empty text has no ids" gives "[]" tok gpt2 ""
check "a model's folder is accepted" prints '^\[[0-9]' "$shoal" tokenize --model "$root/models/demo" Hello
special() { local a b; a=$(tok llama3 hi) b=$(tok llama3 --no-special hi); [ "$a" = "[1203,${b#[}" ]; }
check "special tokens are added, unless --no-special is given" special
both_ways() {
    printf 'a \xe4\xb8\xad\xe6\x96\x87\t\xf0\x9f\x99\x82 \n' >text && tok gpt2 <text >ids &&
        tok gpt2 --decode <ids | cmp - text
}
check "decoding reproduces the text, byte for byte" both_ways
check "decoding with --no-special omits special tokens" gives hi tok llama3 --decode --no-special "[1203,71,72]"
pieces() { tok gpt2 --pieces ' a"b' | grep -qF '"\""]'; }
check "--pieces shows the text of each id" pieces
jsonl() { [ "$(printf '"a"\n"b\\n"\n' | tok gpt2 --jsonl | wc -l)" = 2 ]; }
check "--jsonl prints a line for each line" jsonl
jsonl_back() { printf '"a\\u0007\\""\n' | tok gpt2 --jsonl | tok gpt2 --jsonl --decode | grep -qxF '"a\u0007\""'; }
check "--jsonl works in both directions" jsonl_back
check "without model and tokenizer it exits 2 and names the option" refuses 2 "--tokenizer FILE" "$shoal" tokenize hi
check "a missing file: exit 1, and the error names it" refuses 1 nowhere.json tokenize nowhere.json hi
cut_file() {
    head -c 900 "$data/gpt2.json" >cut.json
    refuses 1 "cut.json.*line 1, column" tokenize cut.json hi && [ "$(wc -l <err)" = 1 ]
}
check "a truncated file: exit 1 and one line with the position" cut_file
sed 's/"type":"BPE"/"type":"WordLevel"/' "$data/gpt2.json" >u.json
check "an unsupported model: exit 1 and its name" refuses 1 "model .WordLevel. is not supported" tokenize u.json hi
check "ids out of range exit 1" refuses 1 "from 0 to 1206, not 99999" tok gpt2 --decode "[1,99999]"
no_ids() { exits 1 tok gpt2 --decode '[1,"x"]' && exits 1 tok gpt2 --decode "{}"; }
check "values that are not ids exit 1" no_ids
not_utf8() { printf 'ab\xff' >bad; ! tok gpt2 <bad 2>err && grep -q "byte 2" err; }
check "invalid UTF-8: exit 1 and the position" not_utf8
not_json() { printf '"a"\n\n' | tok gpt2 --jsonl 2>err; [ $? = 1 ] && grep -q "line 2" err; }
check "a line that is not JSON: exit 1 and its number" not_json
bench() {
    "$shoal" bench text --rounds 1 --tokenizer "$data/gpt2.json" |
        awk -F, 'NR > 1 && NF != 5 {exit 1} END {exit NR < 20}'
}
case $SHOAL_BUILD in
*/release) check "bench text prints CSV" bench ;;
*) skip "bench text prints CSV" "it takes minutes in this build" ;;
esac
check "bench without a name exits 2" exits 2 "$shoal" bench
done_testing
