#!/usr/bin/env bash
# shoal template as a shell sees it.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal demo=$root/models/demo
cd "$(mktemp -d)" || exit 1

echo '{"messages": [{"role": "user", "content": "Hi"}]}' >hi.json
printf '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n' >want
check "a file gives the demo model's prompt" '"$shoal" template --model "$demo" hi.json | cmp - want'
check "so does standard input" '"$shoal" template --model "$demo" <hi.json | cmp - want && "$shoal" template --model "$demo" - <hi.json | cmp - want'
printf '{{ bos_token }}{{ messages[0].content }} {{ eos_token }} {{ strftime_now("%%d.%%m.%%Y") }}' >own.jinja
check "--template replaces the template and keeps the tokens" \
    '[ "$("$shoal" template --model "$demo" --template own.jinja --date 2025-01-31 hi.json)" = "Hi <|im_end|> 31.01.2025" ]'
check "--template needs no model" '[ "$("$shoal" template --template own.jinja --date 2025-01-31 hi.json)" = "Hi  31.01.2025" ]'
check "neither of them is a usage error" 'exits 2 "$shoal" template hi.json && grep -q "needs --model or --template" err'
check "a date that is none is refused" 'exits 1 "$shoal" template --template own.jinja --date 2025-13-01 hi.json && grep -q "such as 2025-01-31, not .2025-13-01." err'

printf '\n{{ messages[0].content + 1 }}' >sum.jinja
check "an error of the template exits 1 with its line" 'exits 1 "$shoal" template --template sum.jinja hi.json && grep -q "shoal: chat template: line 2: can only concatenate str" err && [ ! -s out ]'
echo '{{ raise_exception("the system role is not supported") }}' >no.jinja
check "what a template raises is said in its own words" 'exits 1 "$shoal" template --template no.jinja hi.json && [ "$(cat err)" = "shoal: the system role is not supported" ]'
check "a fault of syntax names the file" 'echo "{% if %}" >if.jinja; exits 1 "$shoal" template --template if.jinja hi.json && grep -q "if.jinja: line 1: Expected an expression" err'
check "a request that is no JSON is named with its place" 'echo "{\"messages\": [}" >bad.json; exits 1 "$shoal" template --template own.jinja bad.json && grep -q "bad.json: not valid JSON at line 1" err'
check "a template without end is stopped" 'echo "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" >long.jinja; exits 1 "$shoal" template --template long.jinja hi.json && grep -qE "more steps|longer than allowed" err'
done_testing
