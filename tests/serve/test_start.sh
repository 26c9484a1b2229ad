#!/usr/bin/env bash
# What a server reports about its group and its limits when it starts, and what `doctor` says about a running one.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'kill "${pid:-}" 2>/dev/null; wait "${pid:-}" 2>/dev/null; rm -rf "$work"' EXIT
port=$((10000 + RANDOM % 20000)) # below the ports that the system hands out
echo '[[null, "d0"], ["d1", null]]' >matrix.json
echo '[["127.0.0.1:'$((port + 1))'"], ["127.0.0.1:'$((port + 2))'"]]' >hosts.json
unset "${!MLX_@}" "${!JACCL_@}"

by_hand() { # a rank as jaccl starts it
    MLX_RANK=$1 MLX_JACCL_COORDINATOR=127.0.0.1:$((port + 3)) MLX_IBV_DEVICES=${MLX_IBV_DEVICES:-matrix.json} \
        timeout 20 "$shoal" "${@:2}" >out 2>err </dev/null
}
# Where the program has RDMA it waits for the other rank, elsewhere it says that it has not.
refused="backend 'jaccl(-ring)?' \\(environment MLX_IBV_DEVICES\\) is not built into"
does_not_serve_alone() {
    by_hand 0 serve --port $port --join-timeout 1; [ $? != 0 ] && grep -qE "$refused|missing rank 1" err
}
others_say_the_same() {
    by_hand 1 linktest --join-timeout 1; [ $? != 0 ] && grep -qE "$refused|rank 0 did not answer" err
}
says_what_is_missing() { # the matrix alone does not tell which rank this is, so it must not serve alone
    MLX_IBV_DEVICES=matrix.json timeout 20 "$shoal" serve --port $port --backend ring >out 2>err </dev/null
    [ $? = 1 ] && grep -q "for one of 2 ranks: say which with --rank (MLX_RANK)" err
}
counts_before_it_serves() { # a coordinator, but nothing that says how many ranks there are
    MLX_RANK=0 MLX_JACCL_COORDINATOR=127.0.0.1:1 timeout 20 "$shoal" serve --port $port >out 2>err </dev/null
    [ $? = 1 ] && grep -q "nothing says how many ranks it has" err
}
asks_for_a_ring() {
    MLX_JACCL_RING=1 by_hand 0 linktest --join-timeout 1; [ $? != 0 ] && grep -qE "$refused|missing rank 1" err
}
checks_the_devices() { # a matrix as text; seed-style environment
    matrix='[[null, "d0"], [null, null]]'
    MLX_RANK=0 MLX_JACCL_COORDINATOR=127.0.0.1:1 MLX_IBV_DEVICES=$matrix exits 1 "$shoal" config check &&
        grep -q "row 0, column 1 names 1 device, but row 1, column 0 names 0" out &&
        MLX_RANK=0 MLX_IBV_DEVICES='[["d0"]' refuses 1 "MLX_IBV_DEVICES.*line 1" "$shoal" linktest
}
text_makes_the_group() {
    local matrix='[[null,"d0"],["d1",null]]'
    MLX_IBV_DEVICES=$matrix by_hand 1 linktest --quick --sizes 4K --rounds 3 --backend ring & local other=$!
    MLX_IBV_DEVICES=$matrix by_hand 0 linktest --quick --sizes 4K --rounds 3 --backend ring && wait $other
}
ring_takes_the_size() { # no other rank is started: it waits for rank 1, and says so
    by_hand 0 linktest --quick --backend ring --join-timeout 1
    grep -q "did not form within 1 s, missing rank 1" err
}
ring_makes_the_group() {
    by_hand 1 linktest --quick --sizes 4K --rounds 3 --backend ring & local other=$!
    by_hand 0 linktest --quick --sizes 4K --rounds 3 --backend ring && wait $other && grep -q "verdict: pass" out
}
counts_the_hostfile() {
    timeout 3 "$shoal" serve --hostfile hosts.json --rank 0 --port $port >out 2>err </dev/null
    grep -q "on 2 ranks" out
}
bare_matrix_is_no_hostfile() {
    exits 0 "$shoal" hosts check matrix.json && grep -q "none has an address" out && ! grep -qE "^ok +hosts" out
}
start() {
    "$shoal" serve --ranks 1 --port $port >log 2>&1 & pid=$!
    for _ in $(seq 150); do curl -sf -m 2 "http://127.0.0.1:$port/health" >/dev/null && return; sleep 0.1; done
    cat log; return 1
}
soft_limit() {
    local c; for c in $(cat "/proc/$pid/task/$pid/children"); do
        tr '\0' '\n' <"/proc/$c/environ" | grep -qx SHOAL_PART=api || continue
        sed -n 's/^Max open files *\([0-9]*\) .*/\1/p' "/proc/$c/limits"
    done
}
limit_of_the_user_stands() {
    [ "$(soft_limit)" = 300 ] && grep -q "info api: at most 236 connections" log && ! grep -q "too few" log
}
doctor_knows_its_own() {
    exits 0 "$shoal" doctor --port $port --state-dir "$work/none" && grep -q "in use while the server there runs" out
}
doctor_fails_for_others() {
    exits 1 "$shoal" doctor --port $((port + 1)) --state-dir "$work/none" && grep -qi "in use" out
}

check "a rank that was started for jaccl does not serve alone" does_not_serve_alone
check "nor does the other one" others_say_the_same
check "nor one that does not know its rank" says_what_is_missing
check "nor one that does not know how many ranks there are" counts_before_it_serves
check "nor one that was started for jaccl-ring" asks_for_a_ring
check "a matrix may be given as text, and its errors name row and column" checks_the_devices
check "ranks form a group from a matrix that is given as text" text_makes_the_group
check "--backend ring gets the size of the group from the devices" ring_takes_the_size
check "and forms it" ring_makes_the_group
check "the size of a group comes from its hostfile" counts_the_hostfile
check "hosts check does not accept a bare matrix as a hostfile" bare_matrix_is_no_hostfile
if [ "$(id -u)" = 0 ] && [ -e "/proc/$$/task/$$/children" ]; then
    FILE_DESCRIPTOR_SOFT_LIMIT=300 start
    check "FILE_DESCRIPTOR_SOFT_LIMIT is respected, and connections fit into it" limit_of_the_user_stands
else start; fi
check "doctor does not complain about the port of a running server" doctor_knows_its_own
if command -v nc >/dev/null; then
    nc -lk 127.0.0.1 $((port + 1)) >/dev/null & other=$!
    sleep 0.3
    check "but about a port used by anything else" doctor_fails_for_others
    kill $other
fi
done_testing
