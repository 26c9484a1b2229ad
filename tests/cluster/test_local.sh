#!/usr/bin/env bash
# Ranks that all run on this machine: `--ranks N` starts, joins, watches and ends them. No root, no network but loopback.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
unset "${!SHOAL_@}" # SHOAL_BUILD is no setting of the program
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac

stress() { "$shoal" linktest --stress --rounds 1000000000 "$@" >out 2>err & main=$!; }
running() { local i; for i in $(seq $((200 * slow))); do grep -q "phase stress" out && { sleep .2; return; }; sleep .05; done; cat out err; return 1; }
child() { pgrep -P "$main" | sed -n "$(($1 + 1))p"; } # the process of rank $1
gone() { # the parent ends within $1 s and leaves nobody behind; its exit code is in $code
    local i kids; kids=$(pgrep -P "$main")
    for i in $(seq $(($1 * 20 * slow))); do kill -0 "$main" 2>/dev/null || break; sleep .05; done
    kill -0 "$main" 2>/dev/null && { echo "still there"; kill -9 $kids "$main"; return 1; }
    wait "$main"; code=$?
    for i in $kids; do kill -0 "$i" 2>/dev/null && { echo "left a child"; return 1; }; done
    return 0
}

check "two ranks share memory, sums are right, and the report is JSON" '
    exits 0 "$shoal" linktest --ranks 2 --quick --json && grep -q "\"correct\":.*true" out && grep -q "\"shm\"" out && grep -q raw_half_trip_us out'
check "five ranks over sockets" 'exits 0 "$shoal" linktest --ranks 5 --quick --transport tcp --sizes 16K,1M --rounds 3 && grep -q "self tcp tcp tcp tcp" out && grep -q "verdict: pass" out'
check "sums in bf16 and int8" 'for w in bf16 int8; do exits 0 "$shoal" linktest --ranks 3 --quick --wire $w --sizes 4K,1M --rounds 3 || exit 1; done'
check "a stress run checks every operation" 'exits 0 "$shoal" linktest --ranks 3 --stress --rounds 300 && grep -q "stress 300 operations right" out'
check "data inside TLS" 'exits 0 "$shoal" linktest --ranks 2 --stress --rounds 100 --transport tcp --no-plain-data && grep -q "self tls" out'

killed() { stress --ranks 3 "$@" && running && kill -9 "$(child 1)" && gone 2 && [ $code != 0 ] && grep -q "^shoal: rank 1 .*lost" err && grep -q "^\[rank 2\] shoal: rank 1 .*lost" err; }
check "a rank that is killed is named by the others, and all end" "killed"
check "the same over sockets" "killed --transport tcp"
frozen() { stress --ranks 3 && running && kill -STOP "$(child 2)" && gone 12 && [ $code != 0 ] && grep -q "^shoal: rank 2 .*silent" err && grep -q "^\[rank 1\] shoal: rank 2 .*silent" err; }
check "a rank that is stopped is named by the others, and all end" "frozen"
interrupted() { stress --ranks 3 && running && kill -TERM "$main" && gone 3 && ! grep -q "did not" err; }
check "SIGTERM ends all ranks" "interrupted"
abandoned() { stress --ranks 3 && running; local kids i; kids=$(pgrep -P "$main"); kill -9 "$main"; for i in $(seq $((40 * slow))); do kill -0 $kids 2>/dev/null || return 0; sleep .05; done; kill -9 $kids; return 1; }
check "ranks end when their parent is killed" "abandoned"

check "a size that is none is refused before ranks start" 'exits 1 "$shoal" linktest --ranks 2 --sizes 16Q && grep -q "16Q" err'
check "one rank has no links" 'exits 1 "$shoal" linktest && grep -q "two ranks" err'
check "a short token is refused" 'exits 1 "$shoal" linktest --ranks 2 --token abc && grep -q "shoal token" err'
check "a hostfile needs a rank" 'echo "[\"127.0.0.1:1\",\"127.0.0.1:2\"]" >h.json; exits 1 "$shoal" linktest --hostfile h.json && grep -q -- "--rank" err'
check "a rank outside of the hostfile is refused" 'exits 1 "$shoal" linktest --hostfile h.json --rank 2 && grep -q "2 hosts" err'
check "a rank outside of the group is refused" '
    MLX_RANK=1 exits 1 "$shoal" logits --model "$root/models/demo" --ids 1 && grep -q "rank is 1 in a group of 1" err &&
    exits 1 "$shoal" logits --model "$root/models/demo" --ids 1 --ranks 2 --rank 5 && grep -q "rank is 5 in a group of 2" err'
check "a backend that is not there is refused by name, from flag and hostfile" '
    exits 1 "$shoal" linktest --ranks 2 --rank 0 --backend nccl && grep -q "backend .nccl." err &&
    echo "{\"backend\":\"jaccl\",\"hosts\":[{\"ssh\":\"a\"},{\"ssh\":\"b\"}]}" >j.json && exits 1 "$shoal" linktest --hostfile j.json --rank 0 && grep -q "backend .jaccl. .j.json.*--backend ring" err'
check "a token is made of 32 hexadecimal digits, another each time" '[[ $("$shoal" token) =~ ^[0-9a-f]{32}$ ]] && [ "$("$shoal" token)" != "$("$shoal" token)" ]'
two_by_hand() {
    echo '["127.0.0.1:39517", ["127.0.0.1:39518"]]' >two.json
    MLX_RANK=1 MLX_HOSTFILE=two.json "$shoal" linktest --quick --stress --rounds 50 >1.out 2>&1 & local one=$!
    "$shoal" linktest --hostfile two.json --rank 0 --stress --rounds 50 --quick && wait $one
}
check "ranks started by hand meet, with MLX's variables too, without a token on loopback" two_by_hand
cd / && rm -rf "$work"
done_testing
