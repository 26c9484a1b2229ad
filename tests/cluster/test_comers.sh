#!/usr/bin/env bash
# Machines that join by a token while everything goes wrong: killed, frozen and cut off while their share travels, with
# a full disk, with a damaged one. A server on h1 and machines on h2 and h3, over links slow enough to interfere.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
shoal=$SHOAL_BUILD/shoal
if ! why=$(hosts_can) || ! why=$(command -v tc || { echo "needs tc"; false; }); then
    skip "machines that join while everything goes wrong" "$why"; done_testing
fi
work=$(mktemp -d /tmp/shoal-comers-XXXXXX) && cd "$work" || exit 1
unset "${!SHOAL_@}" TOKEN
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
declare -A pid
end() { # stops what is left, without a word
    trap - EXIT
    disown -a; kill -9 "${pid[@]}" 2>/dev/null
    hosts_down; cd / && rm -rf "$work"
}
hosts_up 3; trap end EXIT

start() { # NAME HOST command...
    local name=$1 host=$2; shift 2
    on_exec "$host" env XDG_CACHE_HOME="${cache:-$work/cache-$name}" "$shoal" "$@" --threads 1 \
        --state-dir "$work/state-$name" >>"$name.log" 2>&1 &
    pid[$name]=$!
}
server() {
    start server 1 serve --p2p --model "$root/models/demo" --port 8100 --runtime-dir "$work" --degrade-after 1 \
        --rejoin-after 1 "$@"
    within $((20 * slow)) grep -q 'shoal join' server.log
    grep -o 'shoal1[a-z2-7]*' server.log | tail -n 1 >token
}
join() { start "$1" "$2" join "$(cat token)"; } # NAME HOST
tree() { pgrep -P "${pid[$1]}"; echo "${pid[$1]}"; }
# shellcheck disable=SC2046 # a word for each process
signal() { kill "-$1" $(tree "$2"); }
finish() { disown "${pid[$1]}"; signal KILL "$1"; } # NAME
has() { grep -qE -- "$2" "$1" || { tail -n 12 "$1"; return 1; }; } # FILE PATTERN
group() { # SIZE
    on 1 curl -s -m 5 http://127.0.0.1:8100/health >health
    has health "\"world_size\":$1," && has health '"ok":true'
}
answers() {
    on 1 curl -sf -m 30 http://127.0.0.1:8100/v1/completions -H 'Content-Type: application/json' \
        -d '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}' | grep -q '"text":"'
}
# What the switch sends to HOST: the others can talk as before.
slowly() { ip netns exec "${hosts_tag}sw" tc qdisc replace dev "p$1" root tbf rate 4mbit burst 16k latency 50ms; }
quickly() { ip netns exec "${hosts_tag}sw" tc qdisc del dev "p$1" root; }
part() { [ "$(cat "$work/cache-$1"/shoal/shards/*/data 2>/dev/null | wc -c)" -gt "${2:-100000}" ]; } # NAME BYTES
begun() { within $((60 * slow)) part "$1" || { tail -n 12 "$1.log" server.log; return 1; }; }

# The first start: there is no group yet that could go on.
slowly 2
server --min-ranks 2
join a 2
begun a
loading() {
    on 1 curl -s -m 5 -i http://127.0.0.1:8100/v1/completions -H 'Content-Type: application/json' \
        -d '{"prompt": "x"}' >reply
    has reply '^HTTP/1.1 503' && has reply '^Retry-After: [0-9]' && has reply 'load'
}
check "while the ranks load for the first time, requests get 503, when to come back, and why" loading
numbers() {
    on 1 curl -s -m 5 http://127.0.0.1:8100/metrics/snapshot >snapshot
    has snapshot '"loading":\[\{"rank":0,"done":[0-9]+' &&
        has snapshot '\{"rank":1,"done":[0-9]+,"total":[1-9][0-9]+,"rate":[0-9]+,"linked":true\}'
}
check "and how far each rank is, in numbers" within $((30 * slow)) numbers
finish a
again() { within $((30 * slow)) has server.log 'lost.*waiting for ranks' && kill -0 "${pid[server]}"; }
check "a rank that is killed then does not end the server" again
without() {
    on 1 curl -s -m 5 -i http://127.0.0.1:8100/v1/completions -H 'Content-Type: application/json' \
        -d '{"prompt": "x"}' >reply
    has reply '^HTTP/1.1 503' && has reply '^Retry-After: [0-9]'
}
check "requests still get 503 and when to come back" without
quickly 2
join a 2
check "and the group forms when it is back" within $((60 * slow)) group 2

# A running group, and one that comes to it.
check "it answers" answers
slowly 3
join b 3
begun b
signal STOP b
check "a machine that freezes while its share travels stops nobody" answers
signal CONT b
quickly 3
check "and comes in when it goes on" within $((90 * slow)) group 3
kill -TERM "${pid[b]}"
check "it leaves" within $((30 * slow)) group 2
rm -rf cache-b; : >b.log
slowly 3
join b 3
begun b
ip -n "${hosts_tag}3" link set eth0 down
check "a machine whose link is cut while its share travels stops nobody" answers
quickly 3
ip -n "${hosts_tag}3" link set eth0 up
check "and comes in when the link is back" within $((120 * slow)) group 3
kill -TERM "${pid[b]}"
within $((30 * slow)) group 2

# Its disk.
damage() { # bytes and records that are not what they were
    local data journal
    data=$(echo cache-b/shoal/shards/*/data); journal=$(echo cache-b/shoal/shards/*/journal)
    head -c 4096 /dev/urandom | dd of="$data" bs=1024 seek=3 conv=notrunc status=none
    printf 'nonsense\n0 0 1 1 1 99999999999 0 0\n' >>"$journal"
}
damage; : >b.log
join b 3
damaged() { within $((60 * slow)) group 3 && has b.log 'damaged lines|have changed'; }
check "a damaged shard cache is noticed, and what is wrong comes again" damaged
finish b
within $((30 * slow)) group 2
mkdir full && on 3 mount -t tmpfs -o size=300k tmpfs "$work/full" && full=1
if [ -n "$full" ]; then
    : >b.log
    cache=$work/full join b 3
    filled() { within $((60 * slow)) group 3 && answers; } # what does not fit is not kept
    check "a machine with a full disk joins all the same" filled
else skip "a machine with a full disk joins all the same" "no tmpfs"; fi
finish b
within $((30 * slow)) group 2

# The server.
rm -rf cache-b; : >b.log
slowly 3
join b 3
begun b
finish server
quickly 3
server --min-ranks 3
check "a server that is killed while a share travels has all machines again, when it is back" \
    within $((120 * slow)) group 3
check "and answers" answers
end
done_testing
