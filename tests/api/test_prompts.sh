#!/usr/bin/env bash
# The same prompt, whichever way a chat arrives: HTTP and `shoal template` are compared for every template here, and for
# those of real models where available (SHOAL_REAL_TEMPLATES, else shared/real-templates next to the repository).
. "$(dirname "$0")/lib.sh"
if ! command -v jq >/dev/null; then skip "HTTP and the CLI give the same prompt" "jq is missing"; done_testing; fi
data=$root/tests/data/templates
real=${SHOAL_REAL_TEMPLATES:-$root/../shared/real-templates}

# The demo model in a folder whose text files a test may replace; the weights are linked.
mkdir model && ln -s "$root"/models/demo/{config.json,model.safetensors,tokenizer.json} model
plain_folder() {
    rm -rf model/chat_template* model/special_tokens_map.json
    cp "$root"/models/demo/{generation_config,tokenizer_config}.json model
}
plain_folder
"$shoal" engine --model model --socket "$work/engine.sock" 2>engine.log & pids+=("$!")

# The API reads the folder when it starts. Not inside `check`, which waits for everything that it starts.
api_anew() {
    [ -n "${api_pid:-}" ] && stop "$api_pid"
    serve_api api && await /health/ready 200
}

# A chat as both accept it: what is not part of OpenAI's request is a variable of the template. HTTP joins the parts of
# a content, treats an empty list of tools as none, checks OpenAI's roles and continues a last message of the assistant;
# transformers would pass all that on to the template.
body_of() {
    jq -c 'select(all(.messages[]; .role | IN("system", "user", "assistant", "tool")))
        | {messages: [.messages[] | if (.content | type) == "array"
            then .content = ([.content[].text // ""] | add) else . end]}
        + (if (.tools // []) == [] then {} else {tools} end)
        + {chat_template_kwargs: ({add_generation_prompt: true} + del(.messages, .tools, .documents))}'
}

# Both refuse, or both give the same bytes. If the template itself refuses, both give the same reason.
agree() { # body
    local code
    code=$(curl -s -o said -w '%{http_code}' --data-binary @"$1" "$(url /apply-template)")
    if "$shoal" template --model model "$1" >want 2>why; then
        [ "$code" = 200 ] && jq -j .prompt said | cmp - want && return
    elif [ "$code" = 400 ]; then
        jq -e '.error.code != "chat_template_failed"' said >/dev/null ||
            [ "$(jq -r .error.message said | sed 's/^the model.s chat template rejected these messages: //')" = \
                "$(sed 's/^shoal: //' why)" ] && return
    fi
    echo "$1: HTTP $code"; head -c 400 said; head -c 400 want why; return 1
}

# The token ids that the model gets are those of that prompt.
ids_agree() { # body
    local got want
    got=$(jq -c '. + {return_token_ids: true, max_tokens: 1}' "$1" |
        curl -s --data-binary @- "$(url /v1/chat/completions)" | jq -c .prompt_token_ids)
    want=$("$shoal" template --model model "$1" | "$shoal" tokenize --model model --no-special)
    is "$got" "$want"
}

cases_agree() { # a file with one request per line
    local number=0 first="" line
    while read -r line; do
        number=$((number + 1))
        body_of <<<"$line" >"case$number"
        [ -s "case$number" ] || continue
        agree "case$number" || return
        [ -s want ] && first=${first:-case$number}
    done <"$1"
    [ $number -gt 0 ] && ids_agree "$first"
}
check_template() { # name, template; its cases are in ./cases
    plain_folder
    cp "$2" model/chat_template.jinja
    api_anew
    agrees() { cases_agree cases; }
    check "HTTP and the CLI give the same prompt: $1" agrees
}

for template in chat strict schema; do
    jq -c --arg name $template '.cases[] | select(.template == $name) | .request' "$data/chats.json" >cases
    check_template $template "$data/$template.jinja"
done

if [ -d "$real" ]; then
    for cases in "$real"/*.cases.json; do
        name=$(basename "$cases" .cases.json)
        jq -c '.[].context' "$cases" >cases
        check_template "$name" "$real/$name.jinja"
    done
else
    skip "HTTP and the CLI give the same prompt: templates of real models" "none found in $real"
fi

# Files as they come with models.
hello='{"messages":[{"role":"user","content":"Hi"}]}'
with_tools='{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f"}}]}'
prompt_is() { # body, prompt
    printf '%s' "$1" >body.json
    agree body.json && is "$(cat want)" "$2"
}

plain_folder
echo -n '{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ eos_token }}' \
    >model/chat_template.jinja
api_anew
absent_is_none() { prompt_is "$hello" "True True True <|im_end|>"; }
check "fields that a request does not have are none" absent_is_none

plain_folder
mkdir model/chat_templates
echo -n 'plain' >model/chat_templates/default.jinja
echo -n 'tools {{ tools | length }}' >model/chat_templates/tool_use.jinja
api_anew
folder_counts() { prompt_is "$hello" plain && prompt_is "$with_tools" "tools 1"; }
check "templates in a folder are used, with a separate one for tools" folder_counts

plain_folder
echo '{"chat_template": "json {{ messages[0].content }}"}' >model/chat_template.json
api_anew
json_counts() { prompt_is "$hello" "json Hi"; }
check "chat_template.json is used" json_counts

plain_folder
echo '{"chat_template": "{{ bos_token }}{{ eos_token }}", "bos_token": null}' >model/tokenizer_config.json
echo '{"bos_token": {"content": "<B>"}, "eos_token": "<E>"}' >model/special_tokens_map.json
api_anew
map_counts() { prompt_is "$hello" "<B><E>"; }
check "special_tokens_map.json is used" map_counts

plain_folder
echo -n '{% for m in messages %}{{ m.thinking }},{{ m.reasoning_content }};{% endfor %}' >model/chat_template.jinja
api_anew
reasoning_names() {
    prompt_is '{"messages":[{"role":"assistant","content":"a","reasoning":"r"}],"add_generation_prompt":true}' "r,r;"
}
check "reasoning is available under all its names" reasoning_names
done_testing
