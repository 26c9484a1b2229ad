#!/usr/bin/env bash
# Chat templates of real models, which are not part of this repository. SHOAL_REAL_TEMPLATES names a folder with
# NAME.jinja and NAME.cases.json: a list of {case, context, text} or {case, context, error}, where error is Python's
# "Type: message". SHOAL_REAL_TEMPLATES_DATE is the date on which templates that print it were rendered.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
claim="templates of real models give the prompts that transformers gives"
folder=${SHOAL_REAL_TEMPLATES:-} date=${SHOAL_REAL_TEMPLATES_DATE:-2026-11-15}
if [ -z "$folder" ]; then skip "$claim" "SHOAL_REAL_TEMPLATES names no folder"; done_testing; fi
if ! command -v jq >/dev/null; then skip "$claim" "jq is missing"; done_testing; fi
scratch

prompts_agree() { # name
    local count wrong=0
    count=$(jq length "$folder/$1.cases.json")
    for i in $(seq 0 $((count - 1))); do
        jq ".[$i]" "$folder/$1.cases.json" >case
        jq .context case | "$shoal" template --template "$folder/$1.jinja" --date "$date" >got 2>err
        if [ "$(jq 'has("text")' case)" = true ]; then
            jq -j .text case | cmp -s - got && continue
        else
            jq -r '.error | sub("^[A-Za-z]*: "; "")' case | grep -qF -f - err && continue
        fi
        wrong=$((wrong + 1)); echo "case $(jq -r .case case): $(cat err)"; diff <(jq -j .text case) got | head -n 5
    done
    [ $wrong = 0 ]
}

for cases in "$folder"/*.cases.json; do
    name=$(basename "$cases" .cases.json)
    check "$name: $claim" prompts_agree "$name"
done
done_testing
