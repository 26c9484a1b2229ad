#!/usr/bin/env bash
# A model over slow links is as fast as `shoal plan` predicts: one with a long delay (a program that holds frames back),
# and one with little bandwidth (the kernel's token bucket). The links are so slow that the speed of the test machine
# does not matter.
# alone: it measures speed
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
shoal=$SHOAL_BUILD/shoal demo=$root/models/demo
work=$(mktemp -d) && cd "$work" || exit 1
case $SHOAL_BUILD in *san) skip "slow links" "a sanitizer build is slower than the links"; done_testing ;; esac
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
if ! why=$(hosts_can); then skip "slow links" "$why"; cd / && rm -rf "$work"; done_testing; fi
token=$("$shoal" token)
hosts_up 2
cable=
trap '[ -n "$cable" ] && kill $cable; hosts_down' EXIT
net=10.77.0 tokens=8

# pair command...: runs both ranks; the output of rank 0 is in ./out
pair() {
    local options=(--ranks 2 --coordinator "$net.1:9300" --token "$token" --plain-data --join-timeout 20)
    on 2 timeout 60 "$shoal" "$@" --rank 1 "${options[@]}" >1.out 2>&1 & local one=$!
    on 1 timeout 60 "$shoal" "$@" --rank 0 "${options[@]}" >out 2>err && wait $one || { cat err 1.out; return 1; }
}
rate_of() { sed -nE 's/^generate .*: ([0-9.]+) tokens\/s.*/\1/p' out; }
speed() { pair bench --model "$demo" --threads 1 --prompt 0 --generate $tokens --rounds 2 "$@" && rate_of; }
plan() { "$shoal" plan --model "$demo" --ranks 2 --read-gb-s "$read" "$@"; }
predicted() { plan "$@" | sed -nE 's/^predicted: ([0-9.]+) .*/\1/p'; }
near() {
    awk "BEGIN { r = $1 / $2; print \"measured $1, predicted $2: ratio \" r; exit !(r > 0.8 / $(crowd) && r < 1.25) }"
}
# follows "how": the measured speed is the predicted one; a busy machine gets more than one try
follows() {
    local got want
    want=$(predicted "${link[@]}" "$@") || return 1
    for _ in 1 2 3 4; do got=$(speed "$@") && near "$got" "$want" && return; done
    return 1
}
read=$("$shoal" bench --model "$demo" --threads 1 --prompt 0 --generate 64 --rounds 3 |
    sed -nE 's/^a token .*: ([0-9.]+) GB\/s, .*/\1/p')

narrow() {
    local i
    for i in 1 2; do
        ip -n $hosts_tag$i link set eth0 gso_max_segs 1
        ip netns exec $hosts_tag$i tc qdisc replace dev eth0 root tbf rate 4mbit burst 1600 latency 400ms || return 1
    done
}
if ! why=$(narrow 2>&1); then skip "a narrow link" "no token bucket: $why"; else
    link=(--link-us 150 --link-gbit 0.004)
    for kind in f32 bf16 int8; do
        check "tensor parallel on 4 Mbit/s with --wire $kind is as fast as predicted" \
            follows --parallel tensor --wire $kind
    done
    check "a pipeline on 4 Mbit/s is as fast as predicted" follows --parallel pipeline
    for i in 1 2; do ip netns exec $hosts_tag$i tc qdisc del dev eth0 root; done
fi

long() {
    ${CC:-cc} -O2 -D_GNU_SOURCE -o wire "$root/tests/cluster/wire.c" || return 1
    ./wire 4000 ${hosts_tag}1 ${hosts_tag}2 >wire.out 2>&1 & cable=$!
    local i; within 5 grep -q ready wire.out
    for i in 1 2; do
        ip -n $hosts_tag$i addr add 10.78.0.$i/24 dev eth1 && ip -n $hosts_tag$i link set eth1 up ||
            { cat wire.out; return 1; }
    done
}
long >long.out 2>&1; rc=$?
if [ $rc != 0 ]; then skip "a long link" "no TAP devices: $(tail -n 1 long.out)"; else
    net=10.78.0 link=(--link-us 4100 --link-gbit 10)
    for kind in f32 int8; do
        check "tensor parallel over 4 ms with --wire $kind is as fast as predicted" \
            follows --parallel tensor --wire $kind
    done
    check "a pipeline over 4 ms is as fast as predicted" follows --parallel pipeline
    check "plan reports that one machine would be faster" prints FASTER plan "${link[@]}"
fi
cd / && rm -rf "$work"
done_testing
