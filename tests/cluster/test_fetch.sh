#!/usr/bin/env bash
# Workers without a copy of the model, on three hosts: they get their shares from rank 0, keep what came before one was
# killed, and read their own disks the next time.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
work=$(mktemp -d) && cd "$work" || exit 1
if ! why=$(hosts_can) || ! why=$(command -v tc || { echo "needs tc"; false; }); then
    skip "shares of a model over links" "$why"
    cd / && rm -rf "$work"
    done_testing
fi
hosts_up 3
trap 'exit 143' TERM INT # and clean up
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
SHOAL_TOKEN=$("$shoal" token) && export SHOAL_TOKEN

declare -A pids
start() { # NAME HOST command...
    local name=$1 host=$2; shift 2
    on_exec "$host" env XDG_CACHE_HOME="$work/cache$host" "$shoal" "$@" >>"$name.out" 2>&1 </dev/null &
    pids[$name]=$!
}
serve() { start serve 1 serve --model "$root/models/demo" --rank 0 --coordinator 10.77.0.1:9000 --port 8100 "$@"; }
worker() { start "worker$1" $(($1 + 1)) worker --ranks "${2:-3}" --rank "$1" --coordinator 10.77.0.1:9000; }
stop() { # NAME...
    local name
    for name; do kill "${pids[$name]}" 2>/dev/null; done
    for name; do
        for _ in $(seq $((200 * slow))); do kill -0 "${pids[$name]}" 2>/dev/null || break; sleep .05; done
        kill -9 "${pids[$name]}" 2>/dev/null && echo "# $name had to be killed"
        wait "${pids[$name]}"
    done
}
healthy() { on 1 curl -sf http://127.0.0.1:8100/health | grep -q "\"world_size\":$1,"; }
answers() {
    on 1 curl -sf --max-time 30 -H 'Content-Type: application/json' http://127.0.0.1:8100/v1/completions \
        -d '{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}' | grep -o '"text":"[^"]*"'
}
last_share() { grep -o 'share of the model: .*' "$1.out" | tail -n 1; } # NAME
came() { # NAME MB-FROM-RANK-0 MB-FROM-DISK, as patterns
    last_share "$1" | grep -qE ": $2 MB came from rank 0, $3 MB from this disk" || { last_share "$1"; return 1; }
}
some='([1-9][0-9]*\.[0-9]|0\.[1-9])'
has_part() { [ "$(cat cache3/shoal/shards/*/data 2>/dev/null | wc -c)" -gt 100000 ]; }
ended() { ! kill -0 "${pids[$1]}" 2>/dev/null; } # NAME

rank_of() { pgrep -P "${pids[$1]}"; } # NAME of a worker: the process of its rank
limited=$(on 1 tc qdisc add dev eth0 root tbf rate 24mbit burst 64k latency 50ms 2>&1)
if [ -z "$limited" ]; then
    worker 1; worker 2; serve --ranks 3 --split 1,1,1 # by speed, a busy machine may give rank 2 next to nothing
    within $((30 * slow)) has_part; kill -9 "$(rank_of worker2)"
    lost() { # and a first start that fails is final
        within $((30 * slow)) grep -q "rank 2 .*lost" serve.out && within $((30 * slow)) ended serve ||
            { tail serve.out; return 1; }
    }
    check "a rank that is killed while its share travels is lost, by name" lost
    on 1 tc qdisc del dev eth0 root
    stop serve
    serve --ranks 3 --split 1,1,1
else
    skip "a rank that is killed while its share travels" "tc: $limited"
    worker 1; worker 2; serve --ranks 3
fi
continued() {
    within $((90 * slow)) healthy 3 && answers >first && [ -s first ] || { tail serve.out worker*.out; return 1; }
    [ -n "$limited" ] || came worker2 "$some" "$some"
}
check "the next start gets what is missing, and has the rest on its disk" continued
before=$(grep -c 'share of the model' worker1.out)
kill -9 "$(rank_of worker1)"
loaded_again() { [ "$(grep -c 'share of the model' worker1.out)" -gt "$before" ]; }
restarted() {
    within $((60 * slow)) loaded_again && within $((60 * slow)) healthy 3 && came worker1 0.0 "$some" &&
        answers | cmp first -
}
check "a rank that was killed starts again from its disk, without a byte over the link" restarted
stop worker1 worker2 serve

rm -rf cache3
worker 1 2; serve --ranks 2
check "fewer ranks serve with what one has" within $((60 * slow)) healthy 2
start joined 3 worker --join 10.77.0.1:9000
joins() {
    within $((60 * slow)) healthy 3 && came joined "$some" 0.0 && [ -n "$(answers)" ] || { tail joined.out; return 1; }
}
check "a worker without a model is added to a running group" joins
stop joined worker1 serve

# A server alone: what its link carries is nothing but the shares of those who come.
rm -rf cache2 cache3 joined.out serve.out
serve --ranks 1
check "a server starts alone" within $((60 * slow)) healthy 1
if [ -z "$limited" ]; then
    on 1 tc qdisc add dev eth0 root tbf rate 3mbit burst 16k latency 50ms
    start joined 3 worker --join 10.77.0.1:9000
    fetching() {
        within $((60 * slow)) has_part && healthy 1 && [ -n "$(answers)" ] && healthy 1 || { tail serve.out; return 1; }
    }
    check "it answers while the share of a machine that joins is on its way" fetching
    kill "${pids[joined]}"
    gone() { within 10 ended joined && healthy 1 && not grep -q 'lost' serve.out; }
    check "one that is told to stop then does not wait for the rest, and nobody misses it" gone
    comes() { : >serve.out; start joined 3 worker --join 10.77.0.1:9000; within $((60 * slow)) grep -q "$1" serve.out; }
    comes 'on h3 loads its share, to come in'
    disown "${pids[joined]}"; kill -9 "${pids[joined]}" "$(rank_of joined)"
    again() { comes 'on h3 loads its share, to come in' && healthy 1 && not grep -q 'lost' serve.out; }
    check "nor one that is killed; it begins again" again
    on 1 tc qdisc del dev eth0 root
else start joined 3 worker --join 10.77.0.1:9000; fi
start second 2 worker --join 10.77.0.1:9000
both() { within $((90 * slow)) healthy 3 || { tail serve.out joined.out second.out; return 1; }; }
check "two that join at the same time both come in" both
prepared() { # between having its share and being ready, a rank gets nothing more
    awk '/has its share/ { has = 1; more = 0; n++ } /share of the model/ { more = has }
        /ready/ { late += more; has = more = 0 } END { exit late > 0 || n < 2 }' joined.out second.out ||
        { cat joined.out second.out; return 1; }
}
check "and each had its share before the others waited for it" prepared
stop joined second serve
hosts_down
cd / && rm -rf "$work"
done_testing
