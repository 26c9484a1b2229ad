#!/usr/bin/env bash
# Faults between ranks, on hosts made of network namespaces: every rank must report in time what happened and which rank
# it was, and exit. The ranks run `shoal linktest --stress`, which keeps all operations going.
# alone: faults have to be noticed within half a second
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
# Limits from the fault to the exit of every process: 0.5 s for a closed connection, timeout + 0.5 s for silence, plus
# some time to exit, and more on a busy machine.
case $SHOAL_BUILD in *san) slack=1.5 ;; *) slack=0.4 ;; esac
sum() { awk "BEGIN { print $1 }"; }
before() { awk "BEGIN { exit !($1 < $2) }"; }
now() { echo "${EPOCHREALTIME/,/.}"; }
closed=$(sum "0.5 + $slack") silent=$(sum "2.5 + $slack")

if ! why=$(hosts_can); then
    skip "faults between hosts" "$why"
    done_testing
fi
hosts_up 4
token=$("$shoal" token)
echo '["10.77.0.1:9000", "10.77.0.2:9000", "10.77.0.3:9000"]' >hosts.json
echo '["10.77.0.1:9000", "10.77.0.2:9000", "10.77.0.3:9000", "10.77.0.4:9000"]' >four.json
echo '[{"ssh": "s1"}, {"ssh": "me@s2"}, {"ssh": "s3"}]' >names.json
sed "s/$("$shoal" --version | sed "s/shoal //")/9.9.9/g" "$shoal" >other && chmod +x other

# start NAME HOST [flags]: a rank in the background; its output goes to NAME.out and NAME.err. NAME is its rank, or rank
# and letter.
declare -A pid code
start() {
    local name=$1 host=$2; shift 2
    on_exec "$host" "${binary:-$shoal}" linktest --stress --rounds 1000000000 --hostfile "$work/hosts.json" \
        --rank "${name:0:1}" ${token:+--token "$token"} --join-timeout 60 "$@" >"$name.out" 2>"$name.err" &
    pid[$name]=$!
}
running() { # waits until rank 0 is running operations
    within 60 grep -q "phase stress" 0.out && sleep .2 || { echo "the group did not form:"; cat ./*.err; return 1; }
}
group() { start 2 3 "$@"; sleep .1; start 1 2 "$@"; start 0 1 "$@"; running; }
fault() { t0=$(now); } # `ends` measures from here
# ends LIMIT NAME...: all have exited before the limit.
ends() {
    local limit=$1 name left took; shift
    while :; do
        left=
        for name in "$@"; do
            [ -n "${code[$name]:-}" ] && continue
            if kill -0 "${pid[$name]}" 2>/dev/null; then left="$left $name"
            else wait "${pid[$name]}"; code[$name]=$?; fi
        done
        took=$(sum "$(now) - $t0")
        [ -z "$left" ] && break
        before "$took" "$limit + 10" || { echo "rank$left did not exit within $took s"; return 1; }
        sleep .01
    done
    echo "all exited after $took s"
    limit=$(sum "$limit + 0.5 * ($(crowd) - 1)")
    before "$took" "$limit" || { echo "took $took s, must be under $limit"; return 1; }
}
# said CODE PATTERN NAME...: each exited with that code and printed that.
said() {
    local want=$1 pattern=$2 name; shift 2
    for name in "$@"; do
        [ "${code[$name]}" = "$want" ] ||
            { echo "rank $name exited with code ${code[$name]}"; cat "$name.err"; return 1; }
        grep -qE "^shoal: .*$pattern" "$name.err" ||
            { echo "rank $name did not print '$pattern':"; cat "$name.err"; return 1; }
    done
}
alive() {
    local name
    for name in "$@"; do
        kill -0 "${pid[$name]}" || { echo "rank $name has exited:"; cat "$name.err"; return 1; }
    done
}
# Runs one test function and kills whatever it left.
try() {
    rm -f ./*.out ./*.err
    "$@"; local rc=$? name
    for name in "${!pid[@]}"; do kill -9 "${pid[$name]}" 2>/dev/null; wait "${pid[$name]}" 2>/dev/null; done
    for name in 1 2 3; do heal $name; done
    return $rc
}
others_of() { case $1 in 0) others=(1 2) ;; 1) others=(0 2) ;; 2) others=(0 1) ;; esac }

killed() {
    others_of "$1"
    group --transport tcp && fault && kill -9 "${pid[$1]}" && ends "$closed" "${others[@]}" &&
        said 3 "rank $1 at .* was lost" "${others[@]}"
}
for rank in 0 1 2; do check "kill -9 of rank $rank is an error on the others within 0.5 s" try killed $rank; done

frozen() {
    others_of "$1"
    group --transport tcp && fault && kill -STOP "${pid[$1]}" && ends "$silent" "${others[@]}" &&
        said 3 "rank $1 at .* silent for 2" "${others[@]}" && fault && kill -CONT "${pid[$1]}" &&
        ends "$closed" "$1" && said 3 "rank $1 at" "$1"
}
for rank in 0 1 2; do
    check "SIGSTOP of rank $rank is noticed within 2.5 s, and it exits when it is continued" try frozen $rank
done

cable() {
    group && fault && cut 2 && ends "$silent" 0 1 2 && said 3 "rank 1 at .* silent" 0 2 &&
        said 3 "rank [02] at .* silent .*rank [02]" 1
}
check "a cut cable is noticed on both sides within 2.5 s" try cable

half_open() {
    group && fault && cut 2 && kill -9 "${pid[1]}" && sleep .5 && heal 2 && ends "$silent" 0 2 && said 3 "rank 1 at" 0 2
}
check "a connection whose peer has vanished is noticed" try half_open

patient() {
    group --peer-timeout-ms 6000 && kill -STOP "${pid[1]}" && sleep 3.5 && kill -CONT "${pid[1]}" && sleep .5 &&
        alive 0 1 2
}
check "a longer --peer-timeout-ms tolerates a longer silence" try patient

port_taken() {
    start 0 1 && sleep .7 && fault && start 0b 1 && ends 1 0b &&
        said 1 "cannot listen on 10.77.0.1:9000: Address already in use" 0b
}
check "a port that is in use is reported at once" try port_taken

version() {
    "$work/other" --version | grep -q 9.9.9 && start 0 1 && start 1 2 && sleep .7 && fault &&
        binary=$work/other start 2 3 && ends 1.5 0 1 2 && said 3 "rank 2 has version 9.9.9, but rank 0 has" 0 1 2
}
check "a rank of another version is reported on every rank, with both versions" try version

world() {
    start 0 1 && start 1 2 && sleep .7 && fault && start 2 3 --hostfile "$work/four.json" && ends 1.5 0 1 2 &&
        said 3 "rank 2 has world size 4, but rank 0 has 3" 0 1 2
}
check "a different world size is reported on every rank" try world

twice() {
    start 0 1 && start 1 2 && sleep .7 && fault && start 1b 3 --listen 10.77.0.3:9000 && ends 1.5 0 1 1b &&
        said 3 "rank 1 was started twice: at 10.77.0.2:[0-9]+ and at 10.77.0.3" 0 1 1b
}
check "a duplicate rank while the group forms is reported on every rank" try twice

late() {
    group && fault && start 1b 4 --listen 10.77.0.4:9000 && ends 1.5 1b && said 3 "the group has already formed" 1b &&
        sleep .3 && alive 0 1 2
}
check "a duplicate rank of a running group is rejected, and the group continues" try late

other_token() {
    start 0 1 --join-timeout 6 && start 1 2 --join-timeout 6 && sleep .5 && fault &&
        token=$("$shoal" token) start 2 3 --join-timeout 2 && ends 7 0 1 2 && # rank 2 while rank 0 is there
        said 1 "tokens of the two ends differ" 2 &&
        grep "refused a connection from 10.77.0.3:.*tokens of the two ends differ" 0.err &&
        said 3 "missing rank 2" 0 && said 3 "missing rank 2" 1
}
check "a wrong token is refused; both sides report it, and which rank is missing" try other_token

no_token() {
    fault && token='' start 0 1 && ends 1 0 && said 1 "10.77.0.1:9000 is not loopback: .*cluster token" 0
}
check "ranks on several hosts are refused without a token" try no_token

# Strangers on host 4: silent connections, noise, a scan of nearby ports, one byte per second.
pester() {
    on_exec 4 bash -c '
        for i in $(seq 80); do exec {fd}<>/dev/tcp/10.77.0.1/9000; done
        for i in $(seq 40); do head -c $((i * 97)) /dev/urandom >/dev/tcp/10.77.0.1/9000; done
        for p in $(seq 8990 9010); do (exec 3<>/dev/tcp/10.77.0.1/$p); done
        exec 5<>/dev/tcp/10.77.0.1/9000; for i in $(seq 20); do printf "\x16" >&5; sleep 1; done' 2>/dev/null &
    pid[stranger]=$!
}
strangers() {
    start 0 1 && sleep .4 && pester && sleep .7 && fault && start 1 2 && start 2 3 && running &&
        before "$(sum "$(now) - $t0")" "2 + $slack + 2 * ($(crowd) - 1)" &&
        grep "refused a connection from 10.77.0.4" 0.err
}
check "strangers on the port do not prevent the group from forming" try strangers

running_strangers() { group && pester && sleep 2 && alive 0 1 2; }
check "strangers do not disturb a running group" try running_strangers

named() { local r; for r in 2 1 0; do start $r $((r + 1)) --hostfile "$work/names.json"; sleep .2; done; running; }
check "ranks connect over IPv6 and by name, in any order" try named

missing() {
    start 0 1 --join-timeout 2; start 2 3 --join-timeout 2; fault
    ends 4 0 2 && said 3 "missing rank 1" 0 && said 3 "missing rank 1" 2
}
check "a missing rank is named when the time to join is over" try missing

lonely() {
    fault && start 1 2 --join-timeout 2 && ends 3 1 &&
        said 1 "rank 0 did not answer at 10.77.0.1:9000 within 2 s: .*refused" 1
}
check "a rank without a coordinator reports where it tried to connect" try lonely

cd / && rm -rf "$work"
done_testing
