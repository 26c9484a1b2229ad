#!/usr/bin/env bash
# The tokenizer of a synthetic model can be read by other programs.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
"$shoal" synth --shape "$root/tests/data/models/llama-4bit/config.json" --out model >log 2>&1 || cat log

# Hugging Face's reader requires every field of a ByteLevel, where ours has defaults.
every_field() {
    [ -s model/tokenizer.json ] || return 1
    local parts; parts=$(grep -o '"type":"ByteLevel"[^}]*' model/tokenizer.json)
    [ "$(wc -l <<<"$parts")" = 2 ] && [ "$(grep -c '"add_prefix_space":.*"trim_offsets":' <<<"$parts")" = 2 ]
}
others_agree() {
    printf '%s' "Hello wörld, it's  42" >text
    "$shoal" tokenize --model model <text >ours &&
        python3 -c 'import json, tokenizers
t = tokenizers.Tokenizer.from_file("model/tokenizer.json"); text = open("text").read()
ids = t.encode(text).ids
assert ids == json.load(open("ours")) and t.decode(ids) == text, ids'
}
check "a ByteLevel component has all fields that readers require" every_field
if python3 -c 'import tokenizers' 2>/dev/null; then check "Hugging Face's tokenizers give the same ids" others_agree
else skip "Hugging Face's tokenizers give the same ids" "python3 has no module tokenizers"; fi
done_testing
