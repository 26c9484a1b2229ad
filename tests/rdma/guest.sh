# What a guest tests: sh guest.sh RANK RANKS, with parts=NAME,... on the kernel's command line. Every rank runs the same
# steps; they keep in step by joining at rank 0's address, on a new port for each. A line "claim ok NAME" or "claim
# failed NAME" for each result, after what was said about it.
# shellcheck shell=dash disable=SC2046,SC2086 # flags are words
rank=$1 ranks=$2 port=5000
parts=$(sed -n 's/.*\bparts=\([^ ]*\).*/\1/p' /proc/cmdline)
export SHOAL_TOKEN=0123456789abcdef0123456789abcdef SHOAL_PEER_TIMEOUT_MS=6000 SHOAL_SPIN_US=20 SHOAL_THREADS=1

say() { read -r up _ </proc/uptime; echo "[$up s] $*"; }
claim() { # NAME COMMAND...
    name=$1; shift
    if "$@"; then say "ok"; echo "claim ok $name"; return; fi
    cat err out log reply 2>/dev/null | tail -n 12
    say "not ok"; echo "claim failed $name"
}
next_port() { port=$((port + 1)); }
# What finds the others; devices: the cables, as MLX's launcher writes them
group() { echo "--rank $rank --ranks $ranks --coordinator 10.78.0.1:$port --join-timeout 90"; }
case $ranks-$rank in
2-0) cables="- rxe0" ;;
2-1) cables="rxe0 -" ;;
3-0) cables="- rxe0 rxe1" ;;
3-1) cables="rxe0 - rxe1" ;;
3-2) cables="rxe0 rxe1 -" ;;
esac
case $ranks in
2) shares=1,1; echo '[[null, "rxe0"], ["rxe0", null]]' >/tmp/devices ;;
3) shares=1,1,1; echo '[[null, "rxe0", "rxe1"], [["rxe0"], null, "rxe1"], ["rxe0", "rxe1", null]]' >/tmp/devices ;;
esac
jaccl="--backend jaccl --ibv-devices /tmp/devices"
cd /tmp || exit 1
shoal=/test/shoal demo=/test/models/demo

# All collectives at odd sizes, each result checked
sums() { # ROUNDS [FLAGS]
    next_port
    $shoal linktest $(group) ${2:-$jaccl} --sizes 16K --stress --rounds "$1" >out 2>err || return 1
    [ "$rank" != 0 ] || grep -q rdma out
}
unreliable() { SHOAL_RDMA_UC=1 "$@"; }
send_only() { SHOAL_RDMA_SEND_ONLY=1 "$@"; } # as devices of Thunderbolt are
suite() { # the unit tests of the collectives
    next_port
    /test/test_coll --rdma "$rank" "10.78.0.1:$port" $cables >out 2>&1 || { cat out; return 1; }
}

answer() { # FLAGS...
    next_port
    $shoal generate --model $demo --prompt "Once upon a time" --max-tokens 24 --temperature 0 "$@" >out 2>err
}
# Equal shares: those that a busy machine measures may round another way than one rank does
same_answer() { answer $(group) $jaccl --split $shares "$@" && { [ "$rank" != 0 ] || cmp out want; }; }
by_hand() ( # ranks that know of each other what MLX's launcher says in the environment
    export MLX_RANK=$rank MLX_JACCL_COORDINATOR=10.78.0.1:$((port + 1)) MLX_IBV_DEVICES=/tmp/devices
    answer --join-timeout 90 --split $shares && { [ "$rank" != 0 ] || cmp out want; }
)

# Every rank fails, with these words in the error
all_fail() { # PATTERN COMMAND...
    pattern=$1; shift
    if "$@" >out 2>err; then echo "it succeeded"; return 1; fi
    cat err; grep -qE "$pattern" err
}
wrong_device() {
    next_port
    sed 's/rxe0/rxe7/' /tmp/devices >/tmp/wrong # rank 0's first one
    all_fail "there is no RDMA device 'rxe7' on this machine, only rxe0" \
        $shoal linktest $(group) --backend jaccl --ibv-devices /tmp/wrong --quick
}
# Root may lock any amount of memory, unless it gives up that right; rank 1 does
little_memory() {
    next_port
    limit=""; [ "$rank" = 1 ] && limit="/tools/setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock"
    all_fail "may lock only 64 KiB of memory; raise the limit with 'ulimit -l unlimited'" \
        sh -c 'ulimit -l 64; exec "$@"' sh $limit $shoal linktest $(group) $jaccl --quick
}

# ---- a group that serves ----

within() { # SECONDS COMMAND...
    end=$(($(cut -d. -f1 /proc/uptime) + $1)); shift
    until "$@"; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt $end ] || return 1
        usleep 200000
    done
}
ask() {
    $shoal call --port 8080 /v1/completions \
        '{"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}' >reply 2>&1 &&
        sed -n 's/.*"text": *"\([^"]*\)".*/\1/p' reply >text && [ -s text ]
}
answers() { ask && { [ -s first ] || cp text first; } && cmp text first; }
says() { ask; cat reply log | grep -qE "$1"; }
serve() { # rank 0 tests; the others work until it tells them to stop
    next_port; : >log
    if [ "$rank" = 0 ]; then
        $shoal serve --model $demo $(group) $jaccl --port 8080 --op-timeout 20 --replay-timeout 1 --kv-reserve-mb 0 \
            >log 2>&1 &
        server=$!
    else
        keep_working & keeper=$!
        while [ "$(nc -l -p 7000)" = kill ]; do kill -9 "$(cat worker)"; done
        kill $keeper; kill "$(cat worker)"
    fi
}
keep_working() { # as an agent does
    while :; do
        $shoal worker --model $demo $(group) $jaccl --op-timeout 20 --kv-reserve-mb 0 >>log 2>&1 &
        echo $! >worker; wait $!; usleep 500000
    done
}
tell() { echo "$2" | nc "10.78.0.$(($1 + 1))" 7000; }
stop_serving() {
    kill $server; wait $server
    peer=1; while [ $peer -lt "$ranks" ]; do tell $peer stop; peer=$((peer + 1)); done
}
cut_cable() {
    claim "a group over RDMA serves" within 40 answers
    /tools/ip link set eth1 down
    claim "a cut cable is named" within 12 says "port 1 of rxe0 (went|is) down"
    /tools/ip link set eth1 up
    claim "the group re-forms when the cable is back, with the same answers" within 40 answers
}
kill_rank() {
    tell 1 kill
    claim "a killed rank is named" within 12 says "rank 1 .*(lost|left|closed|ended)"
    claim "the group re-forms when the rank is back, with the same answers" within 40 answers
}

# ---- the tools, from rank 0, over ssh ----

said() { cat out err | grep -qE "$1"; } # PATTERN; launch passes on what ranks print on stderr
detects() {
    $shoal hosts detect 10.78.0.1 10.78.0.2 --out found.json >out 2>err && said "rxe0 - rxe0 +direct cable" &&
        tr -d ' \n' <found.json >reply && grep -q '"backend":"jaccl".*"rdma":\[null,"rxe0"\].*\["rxe0",null\]' reply
}
doctor() { $shoal doctor --hostfile found.json >out 2>err; said "rdma .*rxe0"; }
launches() { # PATTERN FLAGS...
    pattern=$1; shift
    $shoal launch --hostfile found.json "$@" >out 2>err && said "$pattern"
}
sizes() {
    export RDMA_SIZES=1024,16384 RDMA_VERBOSE=1 RDMA_ROUNDS=3
    launches "rdma\(rxe0\)" --job linktest && said " 4096 bytes, us: +[0-9.]+ +[0-9.]+ +[0-9.]+" &&
        said " 65536 +[0-9]" && ! said " 16384 "
    rc=$?; unset RDMA_SIZES RDMA_VERBOSE RDMA_ROUNDS; return $rc
}
benches() {
    export SHOAL_BENCH_PROMPT=16 SHOAL_BENCH_GENERATE=4 BENCH_RUNS=1
    launches "16 tokens: [0-9.]+ tokens/s" --job bench --model $demo
}
served() {
    launches "" --model $demo --port 8080 --kv-reserve-mb 0 --detach && within 40 answers &&
        $shoal status >out 2>&1 && said "rxe0"
    rc=$?; $shoal stop >/dev/null 2>&1; return $rc
}

# ---- speed, next to what the verbs themselves do ----

probe() { # PROGRAM FLAGS...: rank 0 is the server
    if [ "$rank" = 0 ]; then "$@" >out 2>&1 & wait $!; else usleep 500000; "$@" 10.79.1.1 >out 2>&1; fi
    grep -E "^ *[0-9]+ " out || cat out
}
speed() {
    say "ib_send_lat, 16 KiB:"; probe /tools/ib_send_lat -d rxe0 -s 16384 -n 200 -F
    say "ib_send_bw, 1 MiB:"; probe /tools/ib_send_bw -d rxe0 -s 1048576 -n 40 -F
    next_port; say "linktest:"; $shoal linktest $(group) $jaccl --sizes 16K,4M 2>&1 | tail -n 6
}

# ---- the parts ----

part_sums() {
    claim "sums over RC queue pairs" sums 8
    claim "sums over UC queue pairs" unreliable sums 8
    claim "sums over devices that can only send" send_only sums 8
}
part_suite() {
    claim "ports that reach each other are found without names" sums 8 "--backend jaccl"
    claim "the tests of the collectives over RC" suite
    claim "the tests of the collectives over UC" unreliable suite
    claim "the tests of the collectives over devices that can only send" send_only suite
}
part_answers() {
    $shoal generate --model $demo --prompt "Once upon a time" --max-tokens 24 --temperature 0 >want 2>err
    claim "the same answers over RC, by MLX's environment" by_hand; next_port
    claim "the same answers over UC, as a pipeline" unreliable same_answer --parallel pipeline
    claim "the same answers over devices that can only send" send_only same_answer
}
part_refusals() {
    claim "a wrong device name is named on all ranks" wrong_device
    claim "too little lockable memory is named on all ranks" little_memory
}
part_cable() { serve; [ "$rank" != 0 ] || { cut_cable; stop_serving; }; }
part_cable_sends() { export SHOAL_RDMA_SEND_ONLY=1; part_cable; unset SHOAL_RDMA_SEND_ONLY; }
part_faults() { serve; [ "$rank" != 0 ] || { cut_cable; kill_rank; stop_serving; }; }
part_speed() { speed; }
part_tools() {
    export SSH_OPTIONS="-F /etc/ssh/config" SHOAL_SSH_TIMEOUT=60
    /usr/sbin/sshd
    [ "$rank" = 0 ] || { nc -l -p 7000; return; }
    within 60 $(command -v ssh) $SSH_OPTIONS 10.78.0.2 true
    claim "hosts detect finds the device and the cable" detects
    claim "doctor knows the device" doctor
    claim "linktest over a hostfile, with sizes and the time of each round" sizes
    claim "bench over a hostfile" benches
    claim "launch serves over RDMA, and status names the device" served
    tell 1 stop
}

for part in $(echo "$parts" | tr , ' '); do "part_$part"; done
