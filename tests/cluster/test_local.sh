#!/usr/bin/env bash
# Ranks that all run on this machine: `--ranks N` starts, connects, watches and stops them. Needs no root, and no
# network but loopback.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac

linktest() { "$shoal" linktest "$@"; }
stress() { "$shoal" linktest --stress --rounds 1000000000 "$@" >out 2>err & main=$!; }
running() { within $((10 * slow)) grep -q "phase stress" out && sleep .2; }
child() { pgrep -P "$main" | sed -n "$(($1 + 1))p"; } # the process of rank $1
ended() { ! kill -0 "$1" 2>/dev/null; }
gone() { # the parent exits within $1 s and leaves no child; its exit code is in $code
    local i kids; kids=$(pgrep -P "$main")
    # shellcheck disable=SC2086
    within $(($1 * slow)) ended "$main" || { echo "still running"; kill -9 $kids "$main"; return 1; }
    wait "$main"; code=$?
    for i in $kids; do ended "$i" || { echo "left a child"; return 1; }; done
}

shared() {
    exits 0 linktest --ranks 2 --quick --json && grep -q '"correct":.*true' out && grep -q '"shm"' out &&
        grep -q raw_half_trip_us out
}
check "two ranks share memory, sums are right, and the report is JSON" shared
five() {
    exits 0 linktest --ranks 5 --quick --transport tcp --sizes 16K,1M --rounds 3 &&
        grep -q "self tcp tcp tcp tcp" out && grep -q "verdict: pass" out
}
check "five ranks over sockets" five
narrow() {
    local wire
    for wire in bf16 int8; do exits 0 linktest --ranks 3 --quick --wire $wire --sizes 4K,1M --rounds 3 || return 1; done
}
check "sums in bf16 and int8" narrow
stressed() {
    exits 0 linktest --ranks 3 --stress --rounds 300 --sizes 1M && grep -q "stress 300 operations correct" out &&
        grep -qE "^large  100 sums of 1048576 bytes correct: .* median, .* GB/s" out
}
check "a stress run checks every operation" stressed
encrypted() {
    exits 0 linktest --ranks 2 --stress --rounds 100 --quick --transport tcp --no-plain-data && grep -q "self tls" out
}
check "data over TLS" encrypted

# pair "FLAGS OF RANK 0" "FLAGS OF RANK 1": both fail with the error in $3
pair() {
    local port flags other; port=$(free_port)
    local ranks=(--ranks 2 --coordinator "127.0.0.1:$port" --quick)
    read -ra flags <<<"$1"
    linktest "${ranks[@]}" --rank 0 "${flags[@]}" >/dev/null 2>err0 & other=$!
    read -ra flags <<<"$2"
    refuses 3 "$3" linktest "${ranks[@]}" --rank 1 "${flags[@]}"; local rc=$?
    wait $other
    [ $rc = 0 ] && grep -q "$3" err0 || { cat err0; return 1; }
}
check "ranks that ask for different transports say so, both" pair "--transport tcp" "--transport shm" \
    "rank 1 asks for shared memory, but rank 0 for sockets"

# names RANK OTHER WHAT: rank 0 and another report what happened to that rank, and the exit code is not 0
names() {
    [ "$code" != 0 ] && grep -q "^shoal: rank $1 .*$3" err && grep -q "^\[rank $2\] shoal: rank $1 .*$3" err ||
        { echo "code $code"; return 1; }
}
killed() { stress --ranks 3 "$@" && running && kill -9 "$(child 1)" && gone 2 && names 1 2 lost; }
check "a killed rank is named by the others, and all exit" killed
check "the same over sockets" killed --transport tcp
frozen() { stress --ranks 3 && running && kill -STOP "$(child 2)" && gone 12 && names 2 1 silent; }
check "a stopped rank is named by the others, and all exit" frozen
interrupted() { stress --ranks 3 && running && kill -TERM "$main" && gone 3 && ! grep -q "did not" err; }
check "SIGTERM stops all ranks" interrupted
abandoned() {
    stress --ranks 3 && running; local kid kids; kids=$(pgrep -P "$main"); kill -9 "$main"
    for kid in $kids; do within $((2 * slow)) ended "$kid" || { kill -9 "$kid"; return 1; }; done
}
check "ranks exit when their parent is killed" abandoned

each_round() { # the variables of earlier clusters
    RDMA_SIZES=1024,262144 RDMA_VERBOSE=1 RDMA_ROUNDS=4 exits 0 linktest --ranks 2 --quick &&
        [ "$(grep -cE "^ +4096 bytes, us:( +[0-9.]+){4}$" out)" = 9 ] && grep -qE "^ +1048576 bytes, us:" out &&
        grep -q "verdict: pass" out || { cat out; return 1; }
}
check "RDMA_SIZES counts numbers, and RDMA_VERBOSE shows every round" each_round
check "a count that is none is refused" refuses 1 "1x. must be 1 to" linktest --ranks 2 --counts 1x
check "an invalid size is refused before ranks start" refuses 1 16Q linktest --ranks 2 --sizes 16Q
check "a single rank has no links to test" refuses 1 "two ranks" linktest
check "a short token is refused" refuses 1 "shoal token" linktest --ranks 2 --token abc
echo '["127.0.0.1:1","127.0.0.1:2"]' >h.json
check "--hostfile needs --rank" refuses 1 --rank linktest --hostfile h.json
check "a rank that is not in the hostfile is refused" refuses 1 "2 hosts" linktest --hostfile h.json --rank 2
outside() {
    local logits=("$shoal" logits --model "$root/models/demo" --ids 1)
    refuses 1 "rank is 1 in a group of 1" env MLX_RANK=1 "${logits[@]}" &&
        refuses 1 "rank is 5 in a group of 2" "${logits[@]}" --ranks 2 --rank 5
}
check "a rank beyond the size of the group is refused" outside
backends() {
    echo '{"backend":"nccl","hosts":[{"ssh":"a"},{"ssh":"b"}]}' >j.json
    refuses 1 "backend .nccl." linktest --ranks 2 --rank 0 --backend nccl &&
        refuses 1 "backend .nccl. .j.json.*--backend ring" linktest --hostfile j.json --rank 0
}
check "an unavailable backend is refused by name, from a flag and from a hostfile" backends
token() { [[ $("$shoal" token) =~ ^[0-9a-f]{32}$ ]] && [ "$("$shoal" token)" != "$("$shoal" token)" ]; }
check "a token has 32 hexadecimal digits, and differs each time" token
two_by_hand() {
    echo "[\"127.0.0.1:$(free_port)\", [\"127.0.0.1:$(free_port)\"]]" >two.json
    MLX_RANK=1 MLX_HOSTFILE=two.json "$shoal" linktest --quick --stress --rounds 50 >1.out 2>&1 & local one=$!
    linktest --hostfile two.json --rank 0 --stress --rounds 50 --quick && wait $one
}
check "ranks started by hand connect, with MLX's variables too, and without a token on loopback" two_by_hand
cd / && rm -rf "$work"
done_testing
