#!/usr/bin/env bash
# `shoal launch` and its companions, on hosts made of network namespaces with a real sshd: three hosts, each with a home
# of its own; the launcher runs on the first. No test may leave anything on any host.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
work=$(mktemp -d) && cd "$work" || exit 1
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
port=8100

targets=(setup bootstrap verify cluster-info sync rdma-test rdma-quick rdma-verbose rdma-stress server server-stop
    server-restart health models models-local models-check chat-test queue dashboard metrics status monitor logs version
    lint test loc bench kill-all fingerprint clean clean-all download)
make_targets() {
    local t
    make -C "$root" help >help && make -C "$root" -n "${targets[@]}" >/dev/null || return 1
    for t in "${targets[@]}"; do grep -qE "^ .*\b$t\b" help || { echo "$t"; return 1; }; done
}
check "make has the targets of earlier clusters, and lists them" make_targets
verbs() {
    local v
    ! "$root/launch.sh" >out || return 1
    for v in start stop restart status test detect; do grep -q "$v" out || { echo "$v"; return 1; }; done
}
check "launch.sh lists its verbs" verbs
alone() {
    exits 0 own_net "$shoal" launch --state-dir "$work/here" --port 0 --job linktest --ranks 3 --quick \
        --sizes 4K,1M --rounds 3 && grep -q "^\[0 .*\] verdict: pass" err && ! ls here/rank-*.pid 2>/dev/null
}
check "without a hostfile the ranks run on this machine; the launch ends with its job" alone
wrong() { # HOSTFILE WORDS
    printf '%s' "$1" >bad.json
    refuses 1 "$2" "$shoal" launch --state-dir "$work/s" --hostfile bad.json || { cat err; return 1; }
}
mistakes() {
    wrong '[' "bad.json.*line 1" && wrong '[{"ips": []}]' "'ssh' of host 0 must be a string" &&
        wrong '[{"ssh": "-oProxyCommand=x"}]' "is not a host name" &&
        wrong '{"backend": "nccl", "hosts": [{"ssh": "a"}]}' "backend 'nccl' .bad.json. .*--backend ring" &&
        wrong '{"backend": "jaccl", "hosts": [{"ssh": "a", "rdma": [null, "x"]}, {"ssh": "b"}]}' \
            "bad.json: rdma.1. of host 0 names 1 device|backend 'jaccl'" &&
        wrong '[[null, "d"], ["d", null]]' "names no host" && wrong '' 'names no host' &&
        wrong '[{"ssh": "localhost"}, {"ssh": "me@far"}]' \
            "rank 0 has the address 'localhost', which the other machines cannot" && [ ! -e s ]
}
check "mistakes in the hostfile are reported before anything is done" mistakes
nothing() {
    exits 0 "$shoal" stop --state-dir "$work/s" && grep -q "no cluster is running" out &&
        exits 1 "$shoal" status --state-dir "$work/s" && exits 1 "$shoal" logs --state-dir "$work/s"
}
check "having nothing to stop or show is reported" nothing

if ! why=$(hosts_can && sshd_can); then
    skip "launch between hosts" "$why"
    cd / && rm -rf "$work"
    done_testing
fi
hosts_up 3
sshd_up
trap 'exit 143' TERM INT # and clean up
export SSH_OPTIONS=$ssh_options
for i in 1 2 3; do mkdir "home$i" && host_home $i "$work/home$i" "$work"; done
# The launcher recognizes its own host by the address.
echo '[{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2"}, {"ssh": "root@h3"}]' >hosts.json
cp -r "$root/models/demo" model
state=home1/.local/state/shoal

here='cd "$0" && HOME=/root exec "$@"' # in this folder: entering a host changes it
on1() { on 1 sh -c "$here" "$work" "$@"; }
launch() { on1 "$shoal" launch --hostfile hosts.json --port $port --grace 2 "$@"; }
start() {
    : >out; : >err
    on_exec 1 sh -c "$here" "$work" "$shoal" launch --hostfile hosts.json --port $port --grace 2 "$@" \
        >out 2>err </dev/null & main=$!
}
says() {
    local i
    for i in $(seq $((200 * slow))); do
        grep -qE "$1" err out 2>/dev/null && return
        kill -0 "$main" 2>/dev/null || break
        sleep .05
    done
    grep -qE "$1" err out || { echo "no '$1' in the output:"; cat err; return 1; }
}
starts() { start "$@" && says "all 3 ranks are ready"; }
ends() { # SECONDS: the launcher has exited; its exit code is in $code
    local i; for i in $(seq $(($1 * 20 * slow))); do kill -0 "$main" 2>/dev/null || break; sleep .05; done
    kill -0 "$main" 2>/dev/null && { echo "still there:"; cat err; return 1; }
    wait "$main"; code=$?
}
ends_on() { kill "-$1" "$main" && ends "$2"; } # SIGNAL SECONDS
question='{"messages":[{"role":"user","content":"Say hello"}],"max_tokens":8,"temperature":0}'
ask() {
    on1 curl -sf --max-time 20 -H 'Content-Type: application/json' -d "$question" \
        "http://127.0.0.1:$port/v1/chat/completions" | grep -o '"content":"[^"]*"'
}
pid_of() { tr -d '\n\t' <$state/launch.json | grep -o "\"rank\":$1,[^}]*" | grep -o '"pid":[0-9]*' | tr -dc 0-9; }
# No process but those of the test bed, no listening socket but sshd's, no file of a rank.
clean() {
    local i p
    for i in 1 2 3; do
        within 3 gives "" shoals_on $i
        for p in $(ip netns pids "$hosts_tag$i"); do
            case $(cat "/proc/$p/comm" 2>/dev/null) in
            '' | sleep | sshd) ;;
            *) echo "left on host $i: $(tr '\0' ' ' <"/proc/$p/cmdline")"; return 1 ;;
            esac
        done
        on $i ls /tmp | grep sock && { echo "sockets left on host $i"; return 1; }
        on $i ss -Hltn | grep -v ':22 ' && { echo "listens on host $i"; return 1; }
        ls "home$i"/.local/state/shoal/{rank-*.pid,launch.json,bin/*.part} 2>/dev/null &&
            { echo "files left on host $i"; return 1; }
    done
    return 0
}
# Runs one test; whatever it started must be gone.
try() {
    "$@"; local rc=$?
    [ -n "${main:-}" ] && kill -INT "$main" 2>/dev/null && ends 10
    if [ -e $state/launch.json ]; then
        on1 "$shoal" stop >/dev/null
        [ $rc = 0 ] && { echo "the cluster still ran"; rc=1; }
    fi
    clean || rc=1
    return $rc
}
# launch_fails CODE PATTERN [flags]: launch fails with that code and prints that
launch_fails() {
    launch "${@:3}" >out 2>err; code=$?
    [[ $code =~ ^$1$ ]] || { echo "code $code"; cat err; return 1; }
    grep -qE "$2" err || { cat err; return 1; }
}

# --- what can be wrong before a rank starts ---
down() {
    cut 3; launch_fails 3 "^shoal: host root@h3: ssh could not connect" --ssh-timeout 1; local rc=$?
    heal 3; return $rc
}
check "a host that is down is named" try down
wrong_key() {
    keys_revoke 2; launch_fails "[1-9][0-9]*" "^shoal: host h2: the key was refused"; local rc=$?; keys_restore 2
    [ $rc = 0 ] && [ "$(grep -c push err)" = 0 ]
}
check "a refused key is named" try wrong_key
another() { # a host that claims another architecture; then one with its own program of another version
    local version native=home3/.local/state/shoal/bin/native
    printf '#!/bin/sh\necho Linux aarch64\n' >uname.other && chmod +x uname.other &&
        on 3 mount --bind "$work/uname.other" "$(command -v uname)"
    launch_fails 1 "^shoal: host root@h3 is Linux aarch64, but .*shoal bootstrap" || return 1
    version=$("$shoal" --version | sed 's/shoal //')
    mkdir -p "${native%/*}" && sed "s/$version/9.9.9/g" "$shoal" >$native && chmod +x $native
    launch_fails 1 "^shoal: host root@h3 has version 9.9.9 of shoal"
}
check "a host of another architecture, and one of another version, are refused with advice" try another
# A source tree that builds quickly: what matters is that it is copied and built there.
bootstrap() {
    mkdir -p tree/tools tree/src && printf '#!/bin/sh\necho installing\n' >tree/tools/setup.sh &&
        chmod +x tree/tools/setup.sh
    printf 'all:\n\t@mkdir -p build/release; cp %s build/release/shoal; echo built in $(CURDIR)\n' "$shoal" \
        >tree/Makefile
    echo '["10.77.0.3:9000"]' >three.json
    exits 0 on1 "$shoal" bootstrap --hostfile three.json --source tree &&
        grep -q "^\[10.77.0.3\] installing" err && grep -q "built in /root/.local/state/shoal/src" err &&
        starts && gives native readlink home3/.local/state/shoal/bin/shoal-rank-2 && ends_on INT 10
}
check "bootstrap builds on the host, and launch then uses that program" try bootstrap
on 3 umount "$(command -v uname)"
rm -rf home3/.local
libraries() {
    { echo '#!/bin/sh'; echo "printf '\tlibevent-2.1.so.7 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n'"; } >ldd
    chmod +x ldd && on 2 mount --bind "$work/ldd" "$(command -v ldd)"
    launch_fails 1 "^shoal: host h2 lacks the libraries libevent-2.1.so.7 *: .shoal bootstrap"; local rc=$?
    on 2 umount "$(command -v ldd)"; return $rc
}
check "a missing library is named, with advice" try libraries
absent() {
    on 1 mount -t tmpfs t "$work/model"
    launch_fails 1 "^shoal: host h1, which runs rank 0, does not have the model $work/model; .*rsync" --model model
    local rc=$?
    on 1 umount "$work/model"
    [ $rc = 0 ] && ! grep load err
}
check "a model that is missing on the host of rank 0 is reported before any rank loads" try absent
fetches() { # MB-FROM-RANK-0 MB-FROM-DISK
    starts --model model --split 1,1,1 && ask && grep -qE "^\[2 root@h3\] has no copy of the model" err &&
        grep -qE "rank 2\] the share of the model: $1 MB came from rank 0, $2 MB from this disk" err || return 1
    [ -z "$(ls "$work/model/only-headers" 2>/dev/null)" ] && ends_on INT 10
}
lacking() {
    on 3 mount -t tmpfs t "$work/model"
    fetches "[1-9][0-9.]*" 0.0 && fetches 0.0 "[1-9][0-9.]*"; local rc=$?
    on 3 umount "$work/model"
    rm -rf home3/.cache
    return $rc
}
check "a host without a copy of the model gets its share from rank 0, and the next time from its disk" try lacking
differs() {
    cp -r model other && echo >>other/config.json && on 2 mount --bind "$work/other" "$work/model"
    launch_fails 1 "^shoal: hosts .* and h2 have different models at $work/model" --model model; local rc=$?
    on 2 umount "$work/model"
    [ $rc = 0 ] && ! grep load err
}
check "a different model on one host is reported" try differs

# --- a cluster ---
serves() {
    starts && ask && grep -qE "^\[1 h2\] load$" err && grep -qE "^\[2 root@h3\] .*info \[rank 2\] ready" err &&
        grep -qE "^\[0 .*\] .*api: listening" err && [ "$(shoals_on 2 | wc -l)" = 3 ] && exits 0 on1 "$shoal" status &&
        grep -qE "^2 +root@h3 +[0-9]+ +ready" out && grep -qE "^link  0 - 2  tls, [0-9.]+ us, [0-9.]+ GB/s" out &&
        grep -q "healthy.*tokens/s.*queue 0 of" out &&
        ends_on INT 10 && [ $code = 130 ]
}
check "three hosts serve a model; Ctrl-C stops them all" try serves
secret() {
    starts && ! grep -q push err || return 1
    local token p settings=home2/.local/state/shoal/settings.env; token=$(cat $state/token)
    for p in $(shoals_on 1) $(shoals_on 2) $(shoals_on 3) "$main" $(pgrep -x ssh); do
        tr '\0' ' ' <"/proc/$p/cmdline" | grep -q "$token" && { echo "in a command line"; return 1; }
    done
    grep -rq "$token" err $state/launch.log $state/launch.json && { echo "in a log"; return 1; }
    [ ${#token} = 32 ] && [ "$(stat -c %a $settings)" = 600 ] && grep -q "$token" $settings &&
        ends_on TERM 10 && [ $code = 0 ]
}
check "a second launch copies nothing; the token is in no command line and no log; SIGTERM stops it cleanly" try secret

cp "$(command -v cat)" cat.real
slow_cat() { # SECONDS: host 2 receives files slowly
    printf '#!/bin/sh\nsleep %d\nexec %s "$@"\n' "$1" "$work/cat.real" >cat.slow && chmod +x cat.slow &&
        on 2 mount --bind "$work/cat.slow" "$(command -v cat)"
}
shared_home() {
    on 3 mount --bind "$work/home2" /root && rm -rf home2/.local && slow_cat 1
    exits 0 launch --prepare; local rc=$?
    on 2 umount -l "$(command -v cat)"; on 3 umount /root
    return $rc
}
check "hosts that share a home get their files at the same time" try shared_home
interrupted_push() {
    local bin=home2/.local/state/shoal/bin i rc
    slow_cat 2
    rm -rf home2/.local; start && says "push bin" && sleep .3 && ends_on INT 1 && [ "$code" = 130 ]; rc=$?
    on 2 umount -l "$(command -v cat)"
    for i in $(seq 80); do ls $bin/*.part >/dev/null 2>&1 || break; sleep .05; done
    [ $rc = 0 ] && ! ls $bin/*
}
check "Ctrl-C while files are copied leaves no partial file" try interrupted_push
interrupted_load() { start && says "^\[[0-2] .*\] (join|load)$" && ends_on INT 10 && [ "$code" = 130 ]; }
check "Ctrl-C while ranks load stops them" try interrupted_load
frozen() { starts && kill -STOP "$(pid_of 2)" && ends_on INT 6 && [ "$code" = 130 ]; }
check "Ctrl-C also stops a rank that hangs" try frozen
killed_launcher() {
    starts && kill -9 "$main"; wait "$main" 2>/dev/null
    sleep .2; rm -f $state/launch.json; clean
}
check "ranks exit by themselves when the launcher is killed" try killed_launcher
fails() {
    launch_fails 1 "^\[0 .*\] shoal: rank 0 has memory for a KV cache of" --kv-tokens 1000000000000 &&
        grep -q "^\[1 h2\] ended with code 1" err
}
check "a rank that cannot start stops the others, with its exit code" try fails
listens() { on 1 ss -ltn | grep -q ":$port "; }
taken() {
    on_exec 1 nc -lk 127.0.0.1 $port & local nc=$! rc
    within 5 listens; launch_fails 1 "$port.*in use"; rc=$?
    kill $nc; wait $nc 2>/dev/null; return $rc
}
check "a port that is in use stops all ranks soon" try taken

back() { # RANK OLD: a new process has that rank, and requests are answered again
    local i
    for i in $(seq $((200 * slow))); do
        new=$(pid_of "$1")
        [ "${new:-0}" != 0 ] && [ "$new" != "$2" ] && ask >/dev/null 2>&1 && break
        sleep .1
    done
    ask && [ "$new" != "$2" ]
}
comes_back() {
    echo "# changed" >>home2/.local/state/shoal/hostfile.json
    starts --slots 4 && [ "$(grep -c "push hostfile" err)" = 1 ] && [ "$(grep -c "push settings" err)" = 3 ] || return 1
    local old new; old=$(pid_of 1)
    kill -9 "$old" && says "^\[1 h2\] .*was killed by signal 9; restarting" && back 1 "$old" &&
        within $((20 * slow)) prints "^1 +h2 +$new +ready +[0-9]+ s +1$" on1 "$shoal" status && ends_on INT 10
}
check "files that differ on a host are copied again; a rank killed while serving is restarted, and serving continues" \
    try comes_back
parent() { awk '{print $4}' "/proc/$1/stat"; }
agent_dies() { # the agent at the remote end of ssh is killed: a new one stops what is left and restarts the rank
    starts || return 1
    local old new agent; old=$(pid_of 2) && [ -n "$old" ] && agent=$(parent "$(parent "$old")") &&
        kill -9 "$agent" && says "^\[2 root@h3\] .*; restarting" && back 2 "$old" &&
        ! shoals_on 3 | grep -qx "$old" && ends_on INT 10
}
check "when the connection to a host breaks, its rank is restarted once" try agent_dies

# --- in the background ---
story='{"messages":[{"role":"user","content":"Tell me a story."}],"temperature":0.9,"seed":7,"ignore_eos":true'
tell() { # TOKENS: an answer as a stream; only its text
    on1 curl -sSN --max-time 60 -H 'Content-Type: application/json' -d "$story,\"max_tokens\":$1,\"stream\":true}" \
        "http://127.0.0.1:$port/v1/chat/completions" | grep -E '"content"|DONE' | grep -oE '"content":"[^"]*"|DONE'
}
short_ones() { while [ ! -e enough ]; do tell 3 | cmp - want3 || { echo "a short answer"; touch wrong; }; done; }
renewed() { # by another program, under answers: all of them are exact, and no connection is refused
    local i pids old=() shorts
    for i in 0 1 2; do old[i]=$(pid_of $i); done
    cp "$shoal" shoal-2 && echo >>shoal-2
    tell 300 >want && tell 3 >want3 && rm -f enough wrong || return 1
    for i in 1 2 3; do tell 300 >"told$i" & pids[i]=$!; done
    short_ones & shorts=$!
    exits 0 on1 ./shoal-2 restart && grep -q "renewed: all 3 ranks" out || return 1
    touch enough; wait $shorts
    for i in 1 2 3; do wait "${pids[i]}" && cmp "told$i" want || { cat "told$i"; return 1; }; done
    for i in 0 1 2; do [ "$(pid_of $i)" != "${old[i]}" ] || { echo "rank $i is the same"; return 1; }; done
    [ ! -e wrong ] && on 3 cmp "/proc/$(pid_of 2)/exe" "$work/shoal-2"
}
told_twice() { [ "$(grep -c "all 3 ranks" follow)" = 2 ]; }
restarted() { # other settings, while the log is being followed
    local old follower rc; old=$(pid_of 1)
    on_exec 1 sh -c "$here" "$work" "$shoal" logs -f >follow & follower=$!
    echo SHOAL_SLOTS=5 >.env
    exits 0 on1 "$shoal" restart; rc=$?
    rm .env
    within 5 told_twice
    kill $follower; wait $follower 2>/dev/null
    [ $rc = 0 ] && grep -q "the settings have changed: stopping the cluster" err && [ "$(pid_of 1)" != "$old" ] &&
        ask && told_twice
}
detached() {
    exits 0 launch --detach --model model && grep -q "in the background" out && ask &&
        launch_fails 1 "a cluster is already running" &&
        exits 0 on1 "$shoal" status --json && grep -q '"state":.*"ready"' out && grep -q '"queue_max"' out &&
        ! grep -q '"environment"' out &&
        exits 0 on1 "$shoal" logs --lines 3 && [ "$(wc -l <out)" = 3 ] && grep -q "all 3 ranks are ready" out &&
        exits 0 on1 "$shoal" call /v1/models && grep -q '"model"' out && renewed && restarted &&
        exits 0 on1 "$shoal" stop && grep -q stopped out && exits 1 on1 "$shoal" status && grep -q "no cluster" out
}
check "detach, status, logs, call, two kinds of restart, and stop" try detached
hosts() { on1 "$shoal" hosts "$@"; }
whole() { tell 200 >told && [ "$(grep -c content told)" -gt 150 ] && [ "$(tail -n 1 told)" = DONE ]; }
ranks() { prints "^$1\$" sed -nE 's/.*"world_size":([0-9]+).*/\1/p' <(on1 "$shoal" call /health); }
grown() { # a host is added under an answer, another one leaves, and both kinds of restart know of it
    echo '[{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2"}]' >grow.json
    exits 0 on1 "$shoal" launch --hostfile grow.json --port $port --grace 2 --rejoin-after 1 --detach || return 1
    keys_revoke 3; hosts add h3 2>err; keys_restore 3; grep -q "host h3: the key was refused" err || return 1
    refuses 1 "host h2 is already in the cluster, as rank 1" hosts add h2 || return 1
    whole & local answer=$!
    exits 0 hosts add root@h3 && grep -q "^rank 2 on root@h3 has joined: 3 ranks" out && wait $answer &&
        within 10 ranks 3 || return 1
    refuses 1 "rank 0 on h1 cannot be removed" hosts remove h1 || return 1
    refuses 1 "'h9' is neither a host nor a rank" hosts remove h9 || return 1
    whole & answer=$!
    exits 0 hosts remove h2 && grep -q "^rank 1 on h2 has left: 2 ranks" out && wait $answer && within 10 ranks 2 ||
        return 1
    [ -z "$(shoals_on 2)" ] && exits 0 on1 "$shoal" status && grep -qE "^2 +root@h3 .*ready" out &&
        ! grep -q h2 out || return 1
    whole & answer=$!
    exits 0 on1 "$shoal" restart && grep -q "renewed: all 2 ranks" out && wait $answer && within 10 ranks 2 ||
        return 1
    exits 0 hosts add h2 && grep -q "^rank 3 on h2 has joined: 3 ranks" out && ranks 3 || return 1
    exits 0 on1 "$shoal" restart --cold && exits 0 on1 "$shoal" status && grep -qE "^1 +root@h3 .*ready" out && ask &&
        exits 0 on1 "$shoal" stop
}
check "hosts are added and removed while the cluster serves" try grown
alone_by_hand() {
    refuses 1 "no launched cluster is running from .*shoal worker --join" hosts add h3 &&
        refuses 1 "no launched cluster is running from .*Ctrl-C" hosts remove h3
}
check "without a cluster, hosts add says what to do by hand" alone_by_hand
foreign() { # a process ID that has been reused since is left alone
    exits 0 launch --detach || return 1
    cp $state/launch.json record; exits 0 on1 "$shoal" stop; sleep 100 & local p=$! rc
    sed -E "s/(\"process\":.*\")[0-9]+ /\1$p /" record >$state/launch.json
    exits 0 on1 "$shoal" stop && grep -q "no cluster is running" out && kill -0 $p; rc=$?
    kill $p; rm -f $state/launch.json; return $rc
}
check "stop never touches a process that launch did not start" try foreign
remote() { # the launcher is not one of the hosts: the API is called through ssh
    echo '["10.77.0.2:9000", "10.77.0.3:9000"]' >two.json
    local body="{\"messages\":[{\"role\":\"user\",\"content\":\"it's me\"}],\"max_tokens\":4}"
    exits 0 on1 "$shoal" launch --hostfile two.json --detach --grace 2 && exits 0 on1 "$shoal" status &&
        grep -q healthy out && exits 0 on1 "$shoal" call /v1/chat/completions "$body" &&
        grep -q '"content"' out && exits 0 on1 "$shoal" stop
}
check "a cluster of other hosts is launched and called from here" try remote
links() {
    exits 0 on1 "$shoal" launch --hostfile hosts.json --job linktest --quick --sizes 4K,1M --rounds 3 &&
        grep -q "^\[0 .*\] verdict: pass" err && exits 0 launch --prepare && grep -q "all 3 hosts are ready" out
}
check "the links between the hosts are tested; --prepare starts nothing" try links
# The matrix is a file of this host only, so the ranks get it as text.
devices() {
    local i matrix='[[null,"ra","rb"],["ra",null,"rb"],["ra","rb",null]]'
    echo "$matrix" >matrix.json
    exits 0 launch --job linktest --quick --sizes 4K --rounds 2 --backend ring --ibv-devices matrix.json || return 1
    for i in 1 2 3; do
        gives "SHOAL_IBV_DEVICES='$matrix'" \
            sed -n '/^SHOAL_IBV_DEVICES/{s/ //g;p}' "home$i/.local/state/shoal/settings.env" || return 1
    done
    launch_fails 1 "devices of 2 ranks, but there are 3 hosts" --ibv-devices '[[null,"a"],["b",null]]' &&
        launch_fails "[13]" "jaccl|RDMA" --job linktest --quick --join-timeout 5 --backend jaccl \
            --ibv-devices matrix.json
}
check "the devices of a matrix reach every rank; one that does not fit is refused" try devices
benchmark() {
    SHOAL_BENCH_PROMPT=8 SHOAL_BENCH_GENERATE=4 BENCH_RUNS=1 exits 0 launch --job bench --threads 1 &&
        grep -qE "^\[0 .*\] generate .*tokens/s" err || { cat err; return 1; }
}
check "a model is timed on all hosts" try benchmark
program() { # which knows the library, and one that does not
    exits 0 launch -- "${shoal%/*}/examples/all_reduce" 5000 && grep -q '^\[2 root@h3\] rank 2' out &&
        gives 3 grep -c 'of 3: the sum is 6, the last rank is 2$' out || return 1
    exits 9 launch -- sh -c 'echo "$SHOAL_COORDINATOR ${SHOAL_API_KEY:-none}"; cat; test $SHOAL_RANK != 2 || exit 9
        exec sleep 100' && gives 3 grep -c '] 10.77.0.1:32323 none$' out &&
        grep -q '\[2 root@h3\] ended with code 9' err
}
check "a program runs on all hosts, the first failure ends it, and its groups form by themselves" try program
workers() { # the variables of a .env file replace a hostfile
    printf '%s\n' "WORKER_HOSTS=10.77.0.2, 10.77.0.3" "WORKER_SSH=h2, root@h3" NUM_DEVICES=3 MODEL_DIR=model \
        "API_PORT=$port" >.env
    exits 0 on1 "$shoal" launch --detach && ask && exits 0 on1 "$shoal" status &&
        grep -qE "^1 +h2 +[0-9]+ +ready" out && exits 0 on1 "$shoal" stop; local rc=$?
    rm .env; return $rc
}
check "workers of a .env file are launched without a hostfile" try workers
occupied() { # from another machine, with the same folder on host 2
    starts && echo '["10.77.0.3:9100", "10.77.0.2:9100"]' >others.json
    on 3 sh -c "$here" "$work" "$shoal" launch --hostfile others.json --port 8200 >out2 2>err2
    [ $? = 1 ] && grep -q "another launch runs rank 1 on this host" err2 && ask && ends_on INT 10
}
check "a second launch leaves the ranks of the first alone" try occupied
cd / && rm -rf "$work"
done_testing
