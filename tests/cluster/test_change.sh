#!/usr/bin/env bash
# Changes of a launched cluster by HTTP, on hosts made of network namespaces with a real sshd: restart, hosts that come
# and go, and everything that must not be possible. The launcher runs on the first host.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
work=$(mktemp -d) && cd "$work" || exit 1
if ! why=$(hosts_can && sshd_can); then
    skip "a launched cluster is changed by HTTP" "$why"
    cd / && rm -rf "$work"
    done_testing
fi
hosts_up 3
sshd_up
trap 'on1 "$shoal" stop >/dev/null 2>&1; sshd_down; hosts_down; cd /; rm -rf "$work"' EXIT
trap 'exit 143' TERM INT
export SSH_OPTIONS=$ssh_options
for i in 1 2 3; do mkdir "home$i" && host_home $i "$work/home$i" "$work"; done
echo '[{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2"}]' >hosts.json
admin=sk-admin-7hWm29Kc5r8t user=sk-user-4fZq81Lx0p2s
printf '%s\n{"name": "user", "key": "%s"}\n' $admin $user >keys.txt
here='cd "$0" && HOME=/root exec "$@"' # in this folder: entering a host changes it
on1() { on 1 sh -c "$here" "$work" "$@"; }
log=home1/.local/state/shoal/launch.log

# METHOD PATH [BODY [CURL-ARGS]]: the status is printed, the body is in ./body
call() {
    local args=(-X "$1" -H "Authorization: Bearer ${key:-$admin}")
    [ -n "${3-}" ] && args+=(-H 'Content-Type: application/json' -d "$3")
    on1 curl -s --max-time 30 -o body -w '%{http_code}' "${args[@]}" "${@:4}" "http://127.0.0.1:8100$2"
}
answers() { # STATUS WORDS METHOD PATH...
    local got; got=$(call "${@:3}")
    [ "$got" = "$1" ] && grep -qF -- "$2" body || { echo "${*:3}: $got, not $1 with '$2':"; cat body; return 1; }
}
state() { call GET /cluster >/dev/null && grep -o '"change":.*' body; }
ended() { ! state | grep -q '"state":"running"' && state | grep -q "$1"; }
becomes() { within 90 ended "$1" || { state; tail -n 20 $log; return 1; }; }
ranks() { call GET /health >/dev/null && grep -q "\"world_size\":$1," body; }
question='{"messages":[{"role":"user","content":"Say hello"}],"max_tokens":8,"temperature":0}'

exits 0 on1 "$shoal" launch --hostfile hosts.json --port 8100 --grace 2 --rejoin-after 1 \
    --api-key-file keys.txt --detach || { cat err; echo "not ok 1 - the cluster starts"; exit 1; }
rm err # check shows it

begins() { answers 200 '"allowed":true,"forbidden":null,"launched":true,"unavailable":null' GET /cluster; }
check "an admin's key may change a launched cluster" begins
strangers() {
    key=sk-wrong-000000000000 answers 401 invalid_api_key POST /cluster/restart '{}' &&
        key=$user answers 403 '\"admin\": true' POST /cluster/restart '{}' &&
        key=$user answers 403 admin POST /cluster/hosts '{"host":"h3"}' &&
        key=$user answers 403 admin DELETE /cluster/hosts/h2 && key=$user answers 403 admin POST /cluster/drain '{}' &&
        key=$user answers 200 '"allowed":false' GET /cluster
}
check "a wrong key and one that is not an admin's change nothing" strangers
forgeries() {
    answers 403 "web pages" POST /cluster/restart '{}' -H 'Origin: https://evil.example' &&
        answers 403 "web pages" DELETE /cluster/hosts/h2 '' -H 'Origin: null' &&
        answers 415 application/json POST /cluster/hosts '' -H 'Content-Type: text/plain' -d '{"host":"h3"}' &&
        answers 405 "does not support GET" GET /cluster/restart &&
        answers 405 "does not support GET" GET '/cluster/hosts?host=h3'
}
check "foreign pages, other types of a body, and GET change nothing" forgeries
odd() { # HOST WORDS
    answers 400 "$2" POST /cluster/hosts "{\"host\":\"$1\"}"
}
names() {
    local host
    # shellcheck disable=SC2016 # not to be expanded
    for host in 'h3;touch x' '$(touch x)' '`touch x`' '-oProxyCommand=touch x' '--help' 'h3 h2' 'h3|x' "h3'" '../h3' \
        'h3\nremove h2' 'h3\u0001' ''; do
        odd "$host" "a host is" || return 1
    done
    odd "$(printf 'h%.0s' $(seq 300))" host && answers 400 host POST /cluster/hosts '{}' &&
        answers 400 host POST /cluster/hosts '{"host":7}' && answers 400 "a host is" DELETE '/cluster/hosts/h2%3Bx' &&
        answers 400 JSON POST /cluster/hosts '{' && [ ! -e x ] || return 1
    head -c 60000000 /dev/zero | tr '\0' a >huge
    [ "$(call POST /cluster/hosts '' -H 'Content-Type: application/json' --data-binary @huge)" = 413 ]
}
check "host names with anything but letters, digits and their signs are refused, and so are huge bodies" names
unaffected() { [ "$(state)" = '"change":null}' ] && ranks 2 && ! grep -q "change " $log; }
check "none of that has reached the launcher" unaffected

grows() {
    answers 202 '"what":"add","host":"root@h3","state":"running"' POST /cluster/hosts '{"host":"root@h3"}' &&
        answers 409 "another change" POST /cluster/restart '{}' -H "X-Request-Id: $(printf 'a:b;%.0s' $(seq 20))" &&
        answers 409 "another change" DELETE /cluster/hosts/1 &&
        becomes 'rank 2 on root@h3 has joined: 3 ranks' && within 20 ranks 3
}
check "a host is added; a second change has to wait" grows
refusals() {
    answers 202 running POST /cluster/hosts '{"host":"h2"}' && becomes '"failed".*already in the cluster, as rank 1' &&
        answers 202 running DELETE /cluster/hosts/h1 && becomes '"failed".*rank 0 on h1 cannot be removed' &&
        answers 202 running DELETE /cluster/hosts/h9 && becomes "\"failed\".*'h9' is neither a host nor a rank" &&
        within 20 ranks 3 && answers 200 content POST /v1/chat/completions "$question"
}
check "what the launcher refuses is told in its words" refusals
pids() { call GET /health >/dev/null && grep -o '"pid":[0-9]*' body | sort; }
restarts() {
    local before; before=$(pids)
    answers 202 '"what":"restart"' POST /cluster/restart '{}' && becomes 'renewed: all 3 ranks are ready' || return 1
    within 20 ranks 3 && [ -n "$before" ] && [ -z "$(comm -12 <(echo "$before") <(pids))" ] &&
        answers 200 content POST /v1/chat/completions "$question"
}
check "a restart renews all ranks, and the new API tells how it ended" restarts
reforming() { # a rank is killed, and a change asked for at once
    local victim; victim=$(shoals_on 3 | tail -n 1)
    kill -9 "$victim" && answers 202 running DELETE /cluster/hosts/2 && becomes 'rank 2 on root@h3 has left: 2 ranks' &&
        within 60 ranks 2 && within 30 answers 200 content POST /v1/chat/completions "$question" &&
        [ -z "$(shoals_on 3)" ]
}
check "a host is removed while the group re-forms" reforming
missing() { call GET /metrics >/dev/null && grep -qE "^shoal_engine_missing_ranks(\{.*\})? $1$" body; } # COUNT
crashed() { # it cannot start, so nobody says that it leaves when its host is removed
    local program
    answers 202 running POST /cluster/hosts '{"host":"root@h3"}' && becomes 'has joined: 3 ranks' &&
        within 20 ranks 3 || return 1
    program=$(readlink -f home3/.local/state/shoal/bin/shoal-rank-3)
    chmod a-x "$program" && kill -9 "$(shoals_on 3 | tail -n 1)" && within 60 missing 1 &&
        answers 202 running DELETE /cluster/hosts/3 && becomes 'rank 3 on root@h3 has left: 2 ranks' &&
        within 30 missing 0 && grep -q 'rank 3 was removed, and is no longer missing' $log
}
check "a host is removed whose rank has crashed and does not come back; nobody misses it" crashed
drains() {
    within 30 answers 200 '"ok":true' GET /health && answers 200 '"draining":true' POST /cluster/drain '{}' &&
        answers 503 "being drained" POST /v1/chat/completions "$question" &&
        answers 503 "being drained" GET /health/ready && answers 200 '"status":"draining"' GET /health &&
        answers 200 '"draining":false' POST /cluster/drain '{"drain":false}' &&
        answers 200 content POST /v1/chat/completions "$question"
}
check "a server that is drained takes no new requests until that is ended" drains
logged() {
    grep -qE "api: [A-Za-z0-9_-]+: add root@h3, asked for by 127.0.0.1" $log && ! grep -qE "$admin|$user" $log
}
check "every change is in the log, with its request, without a key" logged
cold() { # settings of the file have changed: a renewal cannot take them over
    printf 'SHOAL_SLOTS=3\n' >.env && chmod 600 .env
    answers 202 running POST /cluster/restart '{}' &&
        becomes '"failed".*settings have changed: the cluster would have to be stopped' && within 20 ranks 2
    local rc=$?
    rm .env; return $rc
}
check "a restart that would stop the cluster is refused" cold
over() { exits 0 on1 "$shoal" stop && within 10 gives "" shoals_on 1; }
check "the cluster stops as always" over
patient() { # it would wait for its rank for ever, and a question with it
    local program asked rc
    exits 0 on1 "$shoal" launch --hostfile hosts.json --port 8100 --grace 2 --degrade-after -1 \
        --api-key-file keys.txt --detach || return 1
    program=$(readlink -f home2/.local/state/shoal/bin/shoal-rank-1)
    chmod a-x "$program" && kill -9 "$(shoals_on 2 | tail -n 1)" && within 30 answers 503 engine_lost GET /health &&
        { on1 curl -s -m 90 -H "Authorization: Bearer $admin" -H 'Content-Type: application/json' -d "$question" \
            http://127.0.0.1:8100/v1/chat/completions >answer & asked=$!; } &&
        answers 202 running DELETE /cluster/hosts/1 && becomes 'rank 1 on h2 has left: 1 rank' &&
        within 30 ranks 1 && wait $asked && grep -q content answer
    rc=$?
    chmod a+x "$program"; exits 0 on1 "$shoal" stop; return $rc
}
check "a group that waits for its rank goes on without it when its host is removed" patient
lonely() { # without a launcher
    on_exec 1 sh -c "$here" "$work" "$shoal" serve --port 8100 --ranks 1 >serve.log 2>&1 & local pid=$! rc
    within 60 answers 200 '"launched":false,"unavailable":"no launcher' GET /cluster &&
        answers 501 "no launcher" POST /cluster/restart '{}'; rc=$?
    kill "$pid"; wait "$pid"; return $rc
}
check "without a launcher the reason is given" lonely
done_testing
