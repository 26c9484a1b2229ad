#!/usr/bin/env bash
# `shoal hosts`, `doctor`, `fingerprint` and `probe` between hosts made of network namespaces with real sshd: three hosts on
# two networks, one link of which is slow.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1

# --- files alone ---
check "names become a hostfile in object form" '"$shoal" hosts create a,me@b,10.0.0.3 >f && head -n 4 f | tr -d "\n" | grep -q "^{    \"backend\": \"\",    \"envs\": \[\],    \"hosts\": \[$" && "$shoal" hosts check f'
check "-n repeats each host" '[ "$("$shoal" hosts create a,b -n 3 | grep -c ssh)" = 6 ]'
check "an empty name is refused" 'exits 1 "$shoal" hosts create a,,b && grep -q "host 1 of .a,,b." err && exits 1 "$shoal" hosts create a, '
check "every form converts to every other that can hold it" '
    echo "{\"backend\":\"ring\",\"hosts\":[{\"ssh\":\"a\",\"ips\":[\"10.0.0.1\"],\"rdma\":[null,\"d0\"]},{\"ssh\":\"b\",\"ips\":[\"10.0.0.2\"],\"rdma\":[[\"d1\",\"d2\"],null]}]}" >o
    for form in object list plain matrix; do "$shoal" hosts convert o --form $form >$form || exit 1; "$shoal" hosts check $form >/dev/null || { cat $form; exit 1; }; done
    [ "$(tr -d " \n" <plain)" = "[\"10.0.0.1:32323\",\"10.0.0.2:32324\"]" ] && [ "$(tr -d " \n" <matrix)" = "[[null,\"d0\"],[[\"d1\",\"d2\"],null]]" ] &&
    "$shoal" hosts convert list --form object >back && sed s/\"ring\"/\"\"/ object | cmp - back && "$shoal" hosts convert plain --form list 2>/dev/null | grep -q "\"ssh\": \"10.0.0.1\""'
check "a form that the file can not fill is refused" 'exits 1 "$shoal" hosts convert plain --form matrix && grep -q "host 0 has no .rdma." err && exits 1 "$shoal" hosts convert matrix --form object && grep -q "host 0 has neither" err'
wrong() { # TEXT WORDS: check ends with 1 and says the words
    printf '%s' "$1" >bad
    exits 1 "$shoal" hosts check bad && grep -qF -- "$2" out || { echo "$1: $(cat out)"; return 1; }
}
mistakes() {
    wrong '[' 'line 1' && wrong '7' 'must be a list or an object' && wrong '[]' 'has 0 hosts' && wrong '{}' "'hosts' must be a list" &&
        wrong '{"hosts":[{"ips":[]}]}' "'ssh' of host 0" && wrong '[{"ssh":"a"},{"ssh":"b","ips":"x"}]' "'ips' of host 1 must be a list" &&
        wrong '["10.0.0.1"]' 'entry 0' && wrong '[["10.0.0.1:1"],[]]' 'entry 1 is an empty list' && wrong '{"envs":["A"],"hosts":[{"ssh":"a"}]}' 'envs[0]' &&
        wrong '[[null,"a"],["b"]]' 'rdma of host 1 has 1 entries' && wrong '[[null,7],["b",null]]' 'rdma[1] of host 0' && wrong '[["d",null],["b",null]]' 'rdma[0] of host 0' &&
        wrong '{"backend":"gloo","hosts":[{"ssh":"a"}]}' "'gloo' is no backend" && wrong '["10.0.0.1:9000","10.0.0.1:9000"]' 'has the address 10.0.0.1:9000 of host 0' &&
        wrong '[{"ssh":"a","ips":["10.0.0.1"]},{"ssh":"b","ips":["10.0.0.1"]}]' 'has the address 10.0.0.1 of host 0' &&
        wrong '[{"ssh":"a","ips":["127.0.0.1"]},{"ssh":"b","ips":["10.0.0.1"]}]' 'loopback' && wrong '[{"ssh":"a","ips":["0.0.0.0"]},{"ssh":"b","ips":["10.0.0.1"]}]' 'no address to connect to' &&
        wrong '{"backend":"jaccl","hosts":[{"ssh":"a","rdma":[null,"x"]},{"ssh":"b","rdma":[null,null]}]}' 'host 1 has no device to host 0'
}
check "a hostfile with any kind of mistake is refused by name" mistakes

# --- settings ---
mkdir -p hub/models--org--tiny/snapshots/abc hub/models--org--tiny/refs && cp "$root"/models/demo/* hub/models--org--tiny/snapshots/abc/ && echo abc >hub/models--org--tiny/refs/main
check "a model is found by its name in the cache, in every command" 'HF_HUB_CACHE=$work/hub "$shoal" info --model org/tiny | grep -q family && MODEL_REPO=org/tiny MODEL_CACHE_DIR=$work/hub "$shoal" tokenize hi | grep -q "^\["'
check "a name that is not found says where it looked" 'HF_HOME=/nowhere exits 1 "$shoal" info --model org/none && grep -q "/nowhere/hub/models--org--none.*huggingface/hub/models--org--none" err'
printf 'API_PORT=9000\nMODEL_REPO=org/tiny\nMODEL_CACHE_DIR=%s/hub\nPOLL_INTERVAL_SECONDS=0.1\n' "$work" >.env
check "config check says what came from where" 'HF_HUB_OFFLINE=1 QUEUE_MAX=9 exits 0 "$shoal" config check --host 127.0.0.1 && grep -q "^port = 9000  # .env:1 API_PORT" out &&
    grep -q "^queue-max = 9  # environment QUEUE_MAX" out && grep -q "^host = 127.0.0.1  # flag" out && grep -q "^slots = 16  # default" out &&
    grep -q "POLL_INTERVAL_SECONDS *from .env:4, has no effect: ranks wait" out && grep -q "HF_HUB_OFFLINE.*no effect" out && grep -q "ok *model .*snapshots/abc" out'
printf 'API_PORT=99999\nHTTP_PORT=1\nMODEL_REPO=org/none\nWORKER_HOSTS=10.0.0.1,10.0.0.2\nWORKER_SSH=a\nPOLL_INTERVAL_SECONDS=11\nREQUEST_FILE_PATH=/x\nRESPONSE_FILE_PATH=/x\nDISTRIBUTED_BACKEND=gloo\nFILE_DESCRIPTOR_SOFT_LIMIT=9\nFILE_DESCRIPTOR_HARD_LIMIT=8\nbroken\n' >.env
check "config check names every fault, not only the first" 'exits 1 "$shoal" config check --portt 3 && grep -q "env:1: API_PORT: .99999. is not allowed" out && grep -q "model .org/none. is no folder" out && grep -q "WORKER_SSH must have as many" out &&
    grep -q "POLL_INTERVAL_SECONDS.*would not be allowed" out && grep -q "RESPONSE_FILE_PATH.*same file" out && grep -q "DISTRIBUTED_BACKEND: .gloo." out && grep -q "FILE_DESCRIPTOR_HARD_LIMIT must not" out &&
    grep -q "env:12: no NAME=value" out && grep -q "did you mean --port" out'
rm .env
check "workers of the environment become a hostfile" 'WORKER_HOSTS="127.0.0.2, 127.0.0.3" WORKER_SSH="a, b" "$shoal" hosts create --form list >w && [ "$(grep -c ssh w)" = 3 ] && grep -q "\"ssh\": \"b\"" w && grep -q "127.0.0.3" w'
ctrl() { # [flags]: two ranks that know the address from the environment
    local port=$((20000 + RANDOM % 10000)) pid
    CTRL_HOST=127.0.0.1 CTRL_PORT=$port "$shoal" linktest --quick --sizes 4K --rounds 1 --rank 1 --join-timeout 20 "$@" >/dev/null 2>&1 & pid=$!
    CTRL_HOST=127.0.0.1 CTRL_PORT=$port "$shoal" linktest --quick --sizes 4K --rounds 1 --rank 0 --join-timeout 20 "$@" | grep verdict && wait $pid
}
check "ranks meet at CTRL_HOST and CTRL_PORT; a hostfile knows better" 'ctrl --ranks 2 && echo "[\"127.0.0.1:$((30000 + RANDOM % 2000))\", \"127.0.0.1:$((33000 + RANDOM % 2000))\"]" >pair.json && ctrl --hostfile pair.json'
check "fingerprint is JSON with the model in it" '"$shoal" fingerprint --model "$root/models/demo" >fp && tr -d " \t\n" <fp | grep -qE "^\{\"version\":.*\"interfaces\":\[.*\"model\":\{\"dir\":\"[^\"]*\",\"hash\":\"[0-9a-f]{64}\",\"bytes\":[0-9]+\}\}$"'
check "doctor of this host alone needs nothing" '"$shoal" doctor --model "$root/models/demo" --port 0 >out && grep -q "ok *model" out && "$shoal" doctor --port 0 --json | grep -q "\"ok\":.*true"'

if ! why=$(hosts_can && sshd_can); then
    skip "detect and doctor between hosts" "$why"
    done_testing
fi
hosts_up 3
sshd_up
export SSH_OPTIONS=$ssh_options SHOAL_STATE_DIR=$work/state
# A second network, and a narrow wire between host 2 and the first.
ip -n ${hosts_tag}sw link add br1 type bridge forward_delay 0
ip -n ${hosts_tag}sw link set br1 up
for i in 1 2 3; do
    ip -n ${hosts_tag}sw link add q$i type veth peer name eth1 netns $hosts_tag$i
    ip -n ${hosts_tag}sw link set q$i master br1 up
    ip -n $hosts_tag$i addr add 10.78.0.$i/24 dev eth1
    ip -n $hosts_tag$i link set eth1 up
done
slow() { ip netns exec ${hosts_tag}2 tc qdisc replace dev eth0 root tbf rate 80mbit burst 64k latency 50ms; } # one direction is enough
model=$work/model && mkdir "$model" && cp "$root"/models/demo/* "$model/"
if slow; then
    check "detect picks the faster of two networks for every host, and shows why" '
        exits 0 on 1 "$shoal" hosts detect 10.77.0.1 h2 h3 --out "$work/found.json" && cat out &&
        grep -qE "10.77.0.1 - h2 +10.77.0.0/24 .*0.0[0-9] Gbit/s +slower" out && grep -qE "10.77.0.1 - h2 +10.78.0.0/24 .*Gbit/s +\* best" out &&
        [ "$(grep -o "10\.78\.0\.[123]" "$work/found.json" | tr "\n" " ")" = "10.78.0.1 10.78.0.2 10.78.0.3 " ] && "$shoal" hosts check "$work/found.json"'
else
    skip "detect picks the faster of two networks" "tc has no tbf here"
    ip netns exec ${hosts_tag}1 true
fi
mkdir -p home/.ssh && printf 'Host *\n  User root\nhost h1 10.77.0.2\nHost=h3\nHost !h9 h?\n' >home/.ssh/config
check "without names it asks the hosts that ssh knows" 'exits 0 on 1 env HOME="$work/home" "$shoal" hosts detect --json && tr -d " \t\n" <out | grep -q "\"hosts\":\[{\"ssh\":\"h1\",\"answered\":true,\"address\":\"10.7[78].0.1\"},{\"ssh\":\"10.77.0.2\",.*{\"ssh\":\"h3\""'

absent() {
    on 3 mount --bind /dev/null "$(readlink -f "$shoal")"
    exits 0 on 1 "$shoal" hosts detect h1 h3 --out "$work/ping.json"; local rc=$?
    on 3 umount "$(readlink -f "$shoal")"
    [ $rc = 0 ] && grep -q "warning *program *h3 *shoal is not there" out && grep -qE "h1 - h3 .* us +- +\* best" out && grep -q "10.7[78].0.3" "$work/ping.json"
}
check "a host without the program is only knocked at, and that is said" absent

clash() {
    on 2 ip route add default via 10.78.0.254 dev eth0 onlink && on 2 ip link set eth1 mtu 1400
    exits 1 on 1 "$shoal" hosts detect h1 h2; local rc=$?
    on 2 ip route del default; on 2 ip link set eth1 mtu 1500
    [ $rc = 0 ] && grep -q "subnet *h2 *10.78.0.0/24 on eth1 holds the default gateway 10.78.0.254" err && grep -q "10.254.0.0/30" err && grep -q "mtu *h1 - h2 *in 10.78.0.0/24 .*1400" err
}
check "a network that holds the default gateway is found, and unequal MTUs" clash

# Two cables between hosts 1 and 3, both in one bridge; they flood nothing here, so that this machine lives on.
bridges() {
    local i k
    for k in 1 2; do ip -n ${hosts_tag}1 link add c$k type veth peer name c$k netns ${hosts_tag}3; done
    for i in 1 3; do
        ip -n $hosts_tag$i link add br9 type bridge forward_delay 0
        for k in 1 2; do
            ip -n $hosts_tag$i link set c$k master br9
            ip netns exec $hosts_tag$i bridge link set dev c$k flood off mcast_flood off bcast_flood off
            ip -n $hosts_tag$i link set c$k up
        done
        ip -n $hosts_tag$i addr add 10.79.0.$i/24 dev br9; ip -n $hosts_tag$i link set br9 up
    done
    for _ in $(seq 40); do on 3 ip link show br9 | grep -q "state UP" && on 1 ip link show br9 | grep -q "state UP" && break; sleep .05; done
    on 1 "$shoal" hosts detect h1 h3 >out 2>err
    ip -n ${hosts_tag}1 link del c1; ip -n ${hosts_tag}1 link del c2; ip -n ${hosts_tag}1 link del br9; ip -n ${hosts_tag}3 link del br9
    grep -qE "(warning|failure) *bridge *h1 - h3 .*(no|without) spanning tree" err
}
if command -v bridge >/dev/null; then check "two cables between one pair in one bridge are found" bridges; else skip "two cables in one bridge" "needs bridge"; fi

echo '[{"ssh":"h1","ips":["10.78.0.1"]},{"ssh":"h2","ips":["10.78.0.2"]},{"ssh":"h3","ips":["10.78.0.3"]}]' >hosts.json
doctor() { local want=$1; shift; exits "$want" on 1 "$shoal" doctor --hostfile "$work/hosts.json" --model "$model" --port 0 "$@"; }
check "doctor finds three good hosts good" 'doctor 0 && cat out && [ "$(grep -cE "^ok +(ssh|program|clock|memory|model|port) +h[123]" out)" -ge 18 ] && [ "$(grep -cE "^(ok|warning) +link +h[123] - h[123] .* us there and back, [0-9.]+ Gbit" out)" = 3 ] && grep -q "0 failures" out'
# Two faults a visit, since a visit of three hosts takes seconds.
models() {
    mkdir -p other && cp "$model"/* other/ && sed -i '1s/{/{ /' other/config.json && on 2 mount --bind "$work/other" "$model" && on 3 mount -t tmpfs t "$model"
    doctor 1; local rc=$?; on 3 umount "$model"; on 2 umount "$model"
    [ $rc = 0 ] && grep -qE "^failure +model +h3 +.*config.json" out && grep -qE "^failure +model +h2 +.*another model than on h1" out && grep -qE "^ok +model +h1" out && grep -q "rsync -a" out
}
check "doctor names the host that lacks the model, and the one with another" models
port_and_version() {
    sed "s/$("$shoal" --version | sed "s/shoal //")/9.9.9/g" "$shoal" >newer && chmod +x newer && on 2 mount --bind "$work/newer" "$(readlink -f "$shoal")"
    on_exec 1 "$shoal" linktest --hostfile "$work/hosts.json" --rank 0 --insecure --join-timeout 30 >/dev/null 2>&1 & local pid=$!
    for _ in $(seq 50); do on 1 ss -ltn | grep -q :32323 && break; sleep .05; done
    doctor 1; local rc=$?; kill -9 $pid; wait $pid 2>/dev/null; on 2 umount "$(readlink -f "$shoal")"
    [ $rc = 0 ] && grep -qE "^failure +port +h1 +.*10.78.0.1:32323.*in use" out && grep -qE "^failure +program +h2 +version 9.9.9" out
}
check "doctor names a port that is taken, and a version that differs" port_and_version
wrong_key() { keys_revoke 2; doctor 1; local rc=$?; keys_restore 2; [ $rc = 0 ] && grep -qE "^failure +ssh +h2 .*key was refused" out && grep -q "ssh-copy-id" out && grep -qE "^ok +ssh +h3" out; }
check "doctor names a host that refuses the key" wrong_key
down() { cut 3; ip -n ${hosts_tag}sw link set q3 down; doctor 1 --ssh-timeout 2 --json; local rc=$?; heal 3; ip -n ${hosts_tag}sw link set q3 up
    [ $rc = 0 ] && tr -d '\t\n' <out | grep -q '"level":"failure","check":"ssh","subject":"h3"' && tr -d '\t\n' <out | grep -q '"ok":false'; }
check "doctor names a host that is down, in JSON too" down
foreign() { echo '[{"ssh":"h1","ips":["10.78.0.1"]},{"ssh":"h2","ips":["10.99.0.2"]}]' >hosts.json; doctor 1 && grep -qE "^failure +port +h2 +.*10.99.0.2" out && grep -q "hosts detect" out; }
check "doctor finds an address that is not the host's" foreign
plain() { echo '["10.78.0.1:9000", "10.78.0.2:9000"]' >hosts.json; doctor 0 && grep -qE "^ok +port +10.78.0.2 +10.78.0.2:9000 is free" out && grep -qE "^ok +link +10.78.0.1 - 10.78.0.2 +10.78.0.2: " out; }
check "doctor reads a list of addresses too" plain
interrupt() {
    on_exec 1 "$shoal" hosts detect h1 h2 h3 >out 2>err & local pid=$!
    sleep 1.5; kill -INT $pid; wait $pid; local code=$?
    [ $code = 130 ] && [ ! -s out ] || { echo "code $code"; cat out; return 1; }
}
check "Ctrl-C ends a detection in order" interrupt
leftovers() { local i; for i in $(seq 20); do pgrep -f "^$shoal probe" >/dev/null || return 0; sleep .1; done; pgrep -af "^$shoal probe"; return 1; }
check "no probe is left behind" leftovers

cd / && rm -rf "$work"
done_testing
