#!/usr/bin/env bash
# `shoal template` from the shell.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal demo=$root/models/demo
scratch

template() { "$shoal" template "$@"; }
echo '{"messages": [{"role": "user", "content": "Hi"}]}' >hi.json
printf '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' >want
from_file() { template --model "$demo" hi.json | cmp - want; }
check "a file gives the demo model's prompt" from_file
from_input() { template --model "$demo" <hi.json | cmp - want && template --model "$demo" - <hi.json | cmp - want; }
check "so does standard input" from_input
printf '{{ bos_token }}{{ messages[0].content }} {{ eos_token }} {{ strftime_now("%%d.%%m.%%Y") }}' >own.jinja
check "--template replaces the template and keeps the tokens" gives "Hi <|im_end|> 31.01.2025" \
    template --model "$demo" --template own.jinja --date 2025-01-31 hi.json
check "--template needs no model" gives "Hi  31.01.2025" template --template own.jinja --date 2025-01-31 hi.json
check "giving neither is a usage error" refuses 2 "needs --model or --template" template hi.json
check "an invalid date is rejected" refuses 1 "such as 2025-01-31, not .2025-13-01." \
    template --template own.jinja --date 2025-13-01 hi.json

printf '\n{{ messages[0].content + 1 }}' >sum.jinja
type_error() {
    refuses 1 "shoal: chat template: line 2: can only concatenate str" template --template sum.jinja hi.json &&
        [ ! -s out ]
}
check "an error of the template exits 1 with its line" type_error
echo '{{ raise_exception("the system role is not supported") }}' >no.jinja
raised() {
    exits 1 template --template no.jinja hi.json && [ "$(cat err)" = "shoal: the system role is not supported" ]
}
check "raise_exception prints the message of the template unchanged" raised
echo "{% if %}" >if.jinja
check "a syntax error names the file" refuses 1 "if.jinja: line 1: Expected an expression" \
    template --template if.jinja hi.json
echo '{"messages": [}' >bad.json
check "invalid JSON in a request is reported with file and line" refuses 1 "bad.json: not valid JSON at line 1" \
    template --template own.jinja bad.json
echo "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" >long.jinja
check "a template that would run very long is stopped" refuses 1 "more steps|longer than allowed" \
    template --template long.jinja hi.json
done_testing
