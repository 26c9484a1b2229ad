#!/usr/bin/env bash
# `shoal launch` and what belongs to it, between hosts made of network namespaces with a real sshd: three hosts, each with a
# home of its own; the launcher runs on the first. After every test nothing of it may be left on any host.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}" # SHOAL_BUILD is no setting of the program
work=$(mktemp -d) && cd "$work" || exit 1
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
port=8100

targets="setup bootstrap verify cluster-info sync rdma-test rdma-quick rdma-verbose rdma-stress server server-stop server-restart health models
    models-local models-check chat-test queue dashboard metrics status monitor logs version lint test loc bench kill-all fingerprint clean clean-all download"
check "make knows the targets of earlier clusters, and lists them" 'make -C "$root" help >help && make -C "$root" -n $targets >/dev/null && for t in $targets; do grep -qE "^ .*\b$t\b" help || { echo "$t"; exit 1; }; done'
check "launch.sh tells what it knows" '! "$root/launch.sh" >out && for v in start stop restart status test detect; do grep -q "$v" out || exit 1; done'
alone() { exits 0 "$shoal" launch --state-dir "$work/here" --port 0 --job linktest --ranks 3 --quick --sizes 4K,1M --rounds 3 && grep -q "^\[0 .*\] verdict: pass" err && ! ls here/rank-*.pid 2>/dev/null; }
check "without a hostfile the ranks are on this machine; a job that ends ends the launch" alone
wrong() { printf '%s' "$1" >bad.json && exits 1 "$shoal" launch --state-dir "$work/s" --hostfile bad.json && grep -qE "$2" err || { cat err; return 1; }; }
mistakes() {
    wrong '[' "bad.json.*line 1" && wrong '[{"ips": []}]' "'ssh' of host 0 must be a string" && wrong '[{"ssh": "-oProxyCommand=x"}]' "is no host's name" &&
        wrong '{"backend": "jaccl", "hosts": [{"ssh": "a"}]}' "backend 'jaccl' .bad.json. .*--backend ring" && wrong '[[null, "d"], ["d", null]]' "names no host" &&
        wrong '[{"ssh": "localhost"}, {"ssh": "me@far"}]' "rank 0 has the address 'localhost', which the other machines can not" && wrong '' 'names no host'
}
check "mistakes of the hostfile are named before anything is done" 'mistakes && [ ! -e s ]'
check "nothing to stop or show is said" 'exits 0 "$shoal" stop --state-dir "$work/s" && grep -q "no cluster runs" out && exits 1 "$shoal" status --state-dir "$work/s" && exits 1 "$shoal" logs --state-dir "$work/s"'

if ! why=$(hosts_can && sshd_can); then
    skip "launch between hosts" "$why"
    cd / && rm -rf "$work"
    done_testing
fi
hosts_up 3
sshd_up
trap 'exit 143' TERM INT # and clean up
export SSH_OPTIONS=$ssh_options
for i in 1 2 3; do
    mkdir "home$i" && on $i mount --bind "$work/home$i" /root
    # a /tmp of its own, but for the folders of the test and the program
    for dir in "$work" "$hosts_dir" "$root"; do on $i sh -c "mkdir -p '/run/kept/$dir' && mount --bind '$dir' '/run/kept/$dir'" || exit 1; done
    on $i mount -t tmpfs t /tmp
    for dir in "$work" "$hosts_dir" "$root"; do on $i sh -c "mkdir -p '$dir' && mount --bind '/run/kept/$dir' '$dir'" || exit 1; done
done
echo '[{"ssh": "h1"}, {"ssh": "h2"}, {"ssh": "root@h3"}]' >hosts.json
sed -i 's/"h1"/"h1", "ips": ["10.77.0.1"]/' hosts.json # that is how the launcher knows itself
cp -r "$root/models/demo" model
state=home1/.local/state/shoal

here='cd "$0" && HOME=/root exec "$@"' # in this folder, which entering a host leaves
on1() { on 1 sh -c "$here" "$work" "$@"; }
launch() { on1 "$shoal" launch --hostfile hosts.json --port $port --grace 2 "$@"; }
start() { : >out; : >err; on_exec 1 sh -c "$here" "$work" "$shoal" launch --hostfile hosts.json --port $port --grace 2 "$@" >out 2>err </dev/null & main=$!; }
says() { local i; for i in $(seq $((200 * slow))); do grep -qE "$1" err out 2>/dev/null && return; kill -0 "$main" 2>/dev/null || break; sleep .05; done; grep -qE "$1" err out && return; echo "nobody said '$1':"; cat err; return 1; }
ends() { # SECONDS: the launcher has ended; its exit code is in $code
    local i; for i in $(seq $(($1 * 20 * slow))); do kill -0 "$main" 2>/dev/null || break; sleep .05; done
    kill -0 "$main" 2>/dev/null && { echo "still there:"; cat err; return 1; }
    wait "$main"; code=$?
}
ask() { on1 curl -sf --max-time 20 -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"Say hello"}],"max_tokens":8,"temperature":0}' "http://127.0.0.1:$port/v1/chat/completions" | grep -o '"content":"[^"]*"'; }
ranks() { ip netns pids "$hosts_tag$1" | while read -r p; do grep -q '^shoal' "/proc/$p/comm" 2>/dev/null && echo "$p"; done; } # processes of shoal on a host
pid_of() { tr -d '\n\t' <$state/launch.json | grep -o "\"rank\":$1,[^}]*" | grep -o '"pid":[0-9]*' | tr -dc 0-9; }
# No process but the bed's own, no socket that listens but sshd's, no file of a rank.
clean() {
    local i j p
    for i in 1 2 3; do
        for j in $(seq 60); do [ -z "$(ranks $i)" ] && break; sleep .05; done
        for p in $(ip netns pids "$hosts_tag$i"); do
            case $(cat "/proc/$p/comm" 2>/dev/null) in '' | sleep | sshd) ;; *) echo "left on host $i: $(tr '\0' ' ' <"/proc/$p/cmdline")"; return 1 ;; esac
        done
        on $i ls /tmp | grep sock && { echo "sockets left on host $i"; return 1; }
        on $i ss -Hltn | grep -v ':22 ' && { echo "listens on host $i"; return 1; }
        ls "home$i"/.local/state/shoal/{rank-*.pid,launch.json,bin/*.part} 2>/dev/null && { echo "files left on host $i"; return 1; }
    done
    return 0
}
# Runs one test; whatever it started must be gone.
try() {
    "$@"; local rc=$?
    [ -n "${main:-}" ] && kill -INT "$main" 2>/dev/null && ends 10
    [ -e $state/launch.json ] && { on1 "$shoal" stop >/dev/null; [ $rc = 0 ] && { echo "the cluster still ran"; rc=1; }; }
    clean || rc=1
    return $rc
}

# --- what can be wrong before a rank starts ---
down() { cut 3; launch "$@" >out 2>err; code=$?; heal 3; [ $code = 3 ] && grep -qE "^shoal: host root@h3: ssh could not connect" err || { cat err; return 1; }; }
check "a host that is down is named" "try down --ssh-timeout 1"
wrong_key() { keys_revoke 2; launch >out 2>err; code=$?; keys_restore 2; [ $code != 0 ] && grep -q "^shoal: host h2: the key was refused" err && [ "$(grep -c push err)" = 0 ] || { cat err; return 1; }; }
check "a refused key is named" "try wrong_key"
another() { # a host that says it is of another kind; then one with a program of its own, but of another version
    printf '#!/bin/sh\necho Linux aarch64\n' >uname && chmod +x uname && on 3 mount --bind "$work/uname" "$(command -v uname)"
    exits 1 launch && grep -q "^shoal: host root@h3 is Linux aarch64, but .*shoal bootstrap" err || return 1
    mkdir -p home3/.local/state/shoal/bin && sed "s/$("$shoal" --version | sed 's/shoal //')/9.9.9/g" "$shoal" >home3/.local/state/shoal/bin/native && chmod +x home3/.local/state/shoal/bin/native
    exits 1 launch && grep -q "^shoal: host root@h3 has version 9.9.9 of shoal" err
}
check "a host of another kind, and one of another version, are refused with what to do" "try another"
# A source tree whose build is quick: what counts is that it goes there and is built there.
bootstrap() {
    mkdir -p tree/tools tree/src && printf '#!/bin/sh\necho installing\n' >tree/tools/setup.sh && chmod +x tree/tools/setup.sh
    printf 'all:\n\t@mkdir -p build/release; cp %s build/release/shoal; echo built in $(CURDIR)\n' "$shoal" >tree/Makefile
    echo '["10.77.0.3:9000"]' >three.json && exits 0 on1 "$shoal" bootstrap --hostfile three.json --source tree && grep -q "^\[10.77.0.3\] installing" err &&
        grep -q "built in /root/.local/state/shoal/src" err && start && says "all 3 ranks are ready" && grep -q '"program":.*bin/native' $state/launch.json && kill -INT "$main" && ends 10
}
check "bootstrap builds on the host, and launch then uses that program" "try bootstrap"
on 3 umount "$(command -v uname)"
rm -rf home3/.local
libraries() {
    printf '#!/bin/sh\nprintf "\\tlibevent-2.1.so.7 => not found\\n\\tlibc.so.6 => /lib/libc.so.6 (0x1)\\n"\n' >ldd && chmod +x ldd && on 2 mount --bind "$work/ldd" "$(command -v ldd)"
    launch >out 2>err; code=$?; on 2 umount "$(command -v ldd)"
    [ $code = 1 ] && grep -q "^shoal: host h2 lacks the libraries libevent-2.1.so.7 *: .shoal bootstrap" err || { cat err; return 1; }
}
check "a missing library is named with what to do" "try libraries"
absent() {
    on 3 mount -t tmpfs t "$work/model"; launch --model model >out 2>err; code=$?; on 3 umount "$work/model"
    [ $code = 1 ] && grep -q "^shoal: host root@h3 does not have the model $work/model: .*rsync" err && ! grep -q load err || { cat err; return 1; }
}
check "a model that is missing on one host is named before a rank loads" "try absent"
differs() {
    cp -r model other && echo >>other/config.json && on 2 mount --bind "$work/other" "$work/model"; launch --model model >out 2>err; code=$?; on 2 umount "$work/model"
    [ $code = 1 ] && grep -q "^shoal: hosts .* and h2 have different models at $work/model" err && ! grep -q load err || { cat err; return 1; }
}
check "another model on one host is named" "try differs"

# --- a cluster ---
serves() {
    start && says "all 3 ranks are ready" && ask && grep -qE "^\[1 h2\] load$" err && grep -qE "^\[2 root@h3\] .*info \[rank 2\] ready" err && grep -qE "^\[0 .*\] .*api: listening" err &&
        [ "$(ranks 2 | wc -l)" = 2 ] && exits 0 on1 "$shoal" status && grep -qE "^2 +root@h3 +[0-9]+ +ready" out && grep -q "healthy.*tokens/s.*queue 0 of" out &&
        kill -INT "$main" && ends 10 && [ $code = 130 ]
}
check "three hosts serve a model; Ctrl-C ends them all" "try serves"
secret() {
    start && says "all 3 ranks are ready" && ! grep -q push err || return 1
    local token p; token=$(cat $state/token)
    for p in $(ranks 1) $(ranks 2) $(ranks 3) "$main" $(pgrep -x ssh); do tr '\0' ' ' <"/proc/$p/cmdline" | grep -q "$token" && { echo "in a command line"; return 1; }; done
    grep -rq "$token" err $state/launch.log $state/launch.json && { echo "in a log"; return 1; }
    [ ${#token} = 32 ] && [ "$(stat -c %a home2/.local/state/shoal/settings.env)" = 600 ] && grep -q "$token" home2/.local/state/shoal/settings.env && kill -TERM "$main" && ends 10 && [ $code = 0 ]
}
check "a second launch pushes nothing; the token is in no command line and no log; SIGTERM is a clean end" "try secret"

interrupted_push() {
    cp "$(command -v cat)" cat.real && printf '#!/bin/sh\nsleep 2\nexec %s "$@"\n' "$work/cat.real" >cat.slow && chmod +x cat.slow && on 2 mount --bind "$work/cat.slow" "$(command -v cat)"
    rm -rf home2/.local; start && says "push bin" && sleep .3 && kill -INT "$main" && ends 1 && [ "$code" = 130 ]; local rc=$? i
    on 2 umount -l "$(command -v cat)"
    for i in $(seq 80); do ls home2/.local/state/shoal/bin/*.part >/dev/null 2>&1 || break; sleep .05; done
    [ $rc = 0 ] && ! ls home2/.local/state/shoal/bin/*
}
check "Ctrl-C while files are pushed leaves no half file" "try interrupted_push"
interrupted_load() { start && says "^\[[0-2] .*\] (join|load)$" && kill -INT "$main" && ends 10 && [ "$code" = 130 ]; }
check "Ctrl-C while ranks load ends them" "try interrupted_load"
frozen() { start && says "all 3 ranks are ready" && kill -STOP "$(pid_of 2)" && kill -INT "$main" && ends 6 && [ "$code" = 130 ]; }
check "Ctrl-C ends a rank that hangs, too" "try frozen"
killed_launcher() { start && says "all 3 ranks are ready" && kill -9 "$main"; wait "$main" 2>/dev/null; sleep .2; rm -f $state/launch.json; clean; }
check "ranks end by themselves when the launcher is killed" "try killed_launcher"
fails() { exits 1 launch --kv-tokens 1000000000000 && grep -q "^\[0 .*\] shoal: rank 0 has KV room for" err && grep -q "^\[1 h2\] ended with code 1" err; }
check "a rank that can not start stops the others, with its exit code" "try fails"
taken() { on_exec 1 nc -lk 127.0.0.1 $port & local nc=$!; sleep .2; exits 1 launch; local rc=$?; kill $nc; wait $nc 2>/dev/null; [ $rc = 0 ] && grep -qE "$port.*in use" err; }
check "a taken port stops all before long" "try taken"

comes_back() {
    echo "# changed" >>home2/.local/state/shoal/hostfile.json
    start --slots 4 && says "all 3 ranks are ready" && [ "$(grep -c "push hostfile" err)" = 1 ] && [ "$(grep -c "push settings" err)" = 3 ] || return 1
    local old new i; old=$(pid_of 1)
    kill -9 "$old" && says "^\[1 h2\] was killed by signal 9; it is started again" || return 1
    for i in $(seq $((200 * slow))); do new=$(pid_of 1); [ "${new:-0}" != 0 ] && [ "$new" != "$old" ] && ask >/dev/null 2>&1 && break; sleep .1; done
    ask && on1 "$shoal" status | grep -E "^1 +h2 +$new +ready +[0-9]+ s +1$" && kill -INT "$main" && ends 10
}
check "what differs on a host is pushed again; a rank that is killed while serving comes back, and answers go on" "try comes_back"
agent_dies() { # the agent, the far end of its ssh, is killed: a new one ends what is left and starts the rank again
    start && says "all 3 ranks are ready" || return 1
    local old new agent i; old=$(pid_of 2) && [ -n "$old" ] && agent=$(awk '{print $4}' "/proc/$old/stat") &&
        kill -9 "$agent" && says "^\[2 root@h3\] .*; it is started again" || return 1
    for i in $(seq $((200 * slow))); do new=$(pid_of 2); [ "${new:-0}" != 0 ] && [ "$new" != "$old" ] && ask >/dev/null 2>&1 && break; sleep .1; done
    ask && [ "$new" != "$old" ] && ! ranks 3 | grep -qx "$old" && kill -INT "$main" && ends 10
}
check "when the connection to a host breaks, its rank is started again once" "try agent_dies"

# --- in the background ---
detached() {
    exits 0 launch --detach --model model && grep -q "in the background" out && ask && exits 1 launch && grep -q "a cluster runs already" err &&
        exits 0 on1 "$shoal" status --json && grep -q '"state":.*"ready"' out && grep -q '"queue_max"' out && ! grep -q '"environment"' out &&
        exits 0 on1 "$shoal" logs --lines 3 && [ "$(wc -l <out)" = 3 ] && grep -q "all 3 ranks are ready" out &&
        exits 0 on1 "$shoal" call /v1/models && grep -q '"model"' out &&
        { on_exec 1 sh -c "$here" "$work" "$shoal" logs -f >follow & local f=$! old; old=$(pid_of 1); exits 0 on1 "$shoal" restart; rc=$?; sleep 1; kill $f; wait $f 2>/dev/null; [ $rc = 0 ]; } && [ "$(pid_of 1)" != "$old" ] && ask && [ "$(grep -c "all 3 ranks" follow)" = 2 ] &&
        exits 0 on1 "$shoal" stop && grep -q stopped out && exits 1 on1 "$shoal" status && grep -q "no cluster" out
}
check "detach, status, logs, call, restart and stop" "try detached"
foreign() { # a number that was given to somebody else since is left alone
    exits 0 launch --detach || return 1
    cp $state/launch.json record; exits 0 on1 "$shoal" stop; sleep 100 & local p=$!
    sed -E "s/(\"process\":.*\")[0-9]+ /\1$p /" record >$state/launch.json; exits 0 on1 "$shoal" stop && grep -q "no cluster runs" out && kill -0 $p; local rc=$?
    kill $p; rm -f $state/launch.json; return $rc
}
check "stop never touches a process that launch did not start" "try foreign"
remote() { # the launcher is not one of the hosts: the API is asked through ssh
    echo '["10.77.0.2:9000", "10.77.0.3:9000"]' >two.json
    exits 0 on1 "$shoal" launch --hostfile two.json --detach --grace 2 && exits 0 on1 "$shoal" status && grep -q "healthy" out &&
        exits 0 on1 "$shoal" call /v1/chat/completions '{"messages":[{"role":"user","content":"it'"'"'s me"}],"max_tokens":4}' && grep -q '"content"' out && exits 0 on1 "$shoal" stop
}
check "a cluster of other hosts is launched and asked from here" "try remote"
links() { exits 0 on1 "$shoal" launch --hostfile hosts.json --job linktest --quick --sizes 4K,1M --rounds 3 && grep -q "^\[0 .*\] verdict: pass" err && exits 0 launch --prepare && grep -q "all 3 hosts are ready" out; }
check "the links between the hosts are tested; --prepare starts nothing" "try links"
workers() { # the variables of an .env stand for a hostfile
    printf 'WORKER_HOSTS=10.77.0.2, 10.77.0.3\nWORKER_SSH=h2, root@h3\nNUM_DEVICES=3\nMODEL_DIR=model\nAPI_PORT=%s\n' $port >.env
    exits 0 on1 "$shoal" launch --detach && ask && exits 0 on1 "$shoal" status && grep -qE "^1 +h2 +[0-9]+ +ready" out && exits 0 on1 "$shoal" stop; local rc=$?
    rm .env; return $rc
}
check "workers of an .env file are launched without a hostfile" "try workers"
occupied() { # from another machine, with the same folder on host 2
    start && says "all 3 ranks are ready" && echo '["10.77.0.3:9100", "10.77.0.2:9100"]' >others.json
    on 3 sh -c "$here" "$work" "$shoal" launch --hostfile others.json --port 8200 >out2 2>err2; [ $? = 1 ] && grep -q "another launch runs rank 1 here" err2 && ask && kill -INT "$main" && ends 10
}
check "a second launch leaves the ranks of the first alone" "try occupied"
cd / && rm -rf "$work"
done_testing
