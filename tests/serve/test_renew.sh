#!/usr/bin/env bash
# What the API process may lose: nothing but its open connections. All processes are renewed under answers, the API is
# killed under requests, and a retry with the same Idempotency-Key gets the whole answer.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
scratch
unset "${!SHOAL_@}"
(cd "$root" && exec "$shoal" serve --ranks 2 --threads 1 --port 0 --runtime-dir "$work") >log 2>&1 & server=$!
finish() { kill $server 2>/dev/null; wait $server; cd /; rm -rf "$work"; }
trap finish EXIT
within 30 grep -q serving log || { cat log; exit 1; }
address=$(grep -oE '127\.0\.0\.1:[0-9]+' log | head -n 1)
api() {
    local pid
    for pid in $(pgrep -P $server); do
        tr '\0' '\n' </proc/"$pid"/environ | grep -qx SHOAL_PART=api && echo "$pid"
    done
}
ask() { # STREAM TOKENS [CURL FLAGS...]
    local body='{"messages":[{"role":"user","content":"Tell me a story."}],"temperature":0.9,"ignore_eos":true,'
    curl -sS -N -m 60 -H 'Content-Type: application/json' "${@:3}" "http://$address/v1/chat/completions" \
        -d "$body\"max_tokens\":$2,\"stream\":$1$seed}"
}
text() { grep -oE '"content":"([^"\\]|\\.)*"' "$1" | sed -E 's/^"content":"//; s/"$//' | tr -d '\n'; }
seed=',"seed":7'
ask false 600 >quiet && text quiet >want || exit 1

renewed() {
    local one two three
    before=$(pgrep -P $server | sort)
    ask true 600 >a & one=$!
    ask false 600 >b & two=$!
    sleep .1; kill -USR2 $server
    sleep .05; ask true 600 >c & three=$! # while there is no engine
    wait $one && wait $two && wait $three || return 1
    for answer in a b c; do text $answer | cmp - want || return 1; done
}
check "answers go on while all processes are renewed, and new requests wait" renewed
all_new() {
    [ "$(pgrep -P $server | wc -l)" = 3 ] && [ -z "$(comm -12 <(echo "$before") <(pgrep -P $server | sort))" ]
}
before=$(pgrep -P $server | sort)
kill -USR2 $server
check "every process is another one, and the old ones are gone" within 20 all_new

killed() { # the connections that are open are cut, all others wait
    local i
    ask true 600 >cut.off 2>/dev/null & i=$!
    sleep .05; kill -KILL "$(api)"
    wait $i
    for i in 1 2 3; do ask false 5 >ok && grep -q '"usage"' ok || { cat ok; return 1; }; done
}
check "a killed API refuses nobody" killed

one_api() { [ "$(api | wc -l)" = 1 ]; }
broken() { # the new API cannot start: the old one stays
    local old
    within 20 one_api && old=$(api)
    printf 'short\n' >keys
    kill -USR2 $server
    within 20 grep -q 'the old one stays' log && [ "$(api)" = "$old" ] && ask false 5 -H "Authorization: Bearer $key" |
        grep -q '"usage"'
}

seed=''
retried() {
    ask true 600 -H 'Idempotency-Key: one' >part 2>/dev/null & local one=$!
    within 10 grep -q content part
    kill -KILL "$(api)"; wait $one
    ask true 600 -H 'Idempotency-Key: one' >whole && ask false 600 -H 'Idempotency-Key: other' >other || return 1
    ask true 600 -H 'Idempotency-Key: one' >again || return 1
    [ -n "$(text part)" ] && grep -q '\[DONE\]' whole || return 1
    case $(text whole) in "$(text part)"*) ;; *) echo "another answer"; return 1 ;; esac
    [ "$(text whole)" = "$(text again)" ] && [ "$(text whole)" != "$(text other)" ]
}
check "a retry with its Idempotency-Key gets the whole answer, drawn once" retried
check "another body under the same key is refused" prints '"code":"idempotency_key_reused".*422$' \
    ask false 5 -H 'Idempotency-Key: one' -w '%{http_code}'
check "so is a key that is too long" prints 'it may have 255.*400$' \
    ask false 5 -H "Idempotency-Key: $(printf 'k%.0s' {1..256})" -w '%{http_code}'

# Rank 1 belongs to somebody else, as on another machine: it waits for the new rank 0.
address=127.0.0.1:$(free_port)
export SHOAL_TOKEN; SHOAL_TOKEN=$("$shoal" token)
key=$("$shoal" token)
echo "$key" >keys
group=(--coordinator "127.0.0.1:$(free_port)" --ranks 2 --model "$root/models/demo" --threads 1)
finish_group() { kill $first $second 2>/dev/null; wait $first $second; finish; }
"$shoal" worker --rank 1 "${group[@]}" >worker.log 2>&1 & second=$!
kill $server; wait $server
"$shoal" serve --rank 0 "${group[@]}" --port "${address#*:}" --api-key-file keys --runtime-dir "$work" >log 2>&1 &
first=$! server=$first
trap finish_group EXIT
within 30 grep -q serving log || { cat log worker.log; exit 1; }
seed=',"seed":7'
elsewhere() {
    ask true 600 -H "Authorization: Bearer $key" >a & local one=$!
    sleep .1; kill -USR2 $server
    wait $one && text a | cmp - want || { head -c 600 a; tail -n 20 log worker.log; return 1; }
    kill -0 $second && within 20 served_again
}
served_again() { [ "$(grep -c serving log)" -ge 2 ]; }
check "a rank of another machine waits for the new rank 0, and the answer goes on" elsewhere
check "a new API that cannot start leaves the old one in its place" broken
done_testing
