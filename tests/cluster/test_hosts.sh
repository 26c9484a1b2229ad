#!/usr/bin/env bash
# `shoal hosts`, `doctor`, `fingerprint` and `probe` on hosts made of network namespaces with a real sshd: three hosts
# on two networks, with one slow link.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
squeezed() { tr -d ' \t\n' <"$1"; }

# --- files only ---
create() {
    "$shoal" hosts create a,me@b,10.0.0.3 >f && "$shoal" hosts check f &&
        head -n 4 f | tr -d '\n' | grep -q '^{    "backend": "",    "envs": \[\],    "hosts": \[$'
}
check "names become a hostfile in object form" create
repeated() { [ "$("$shoal" hosts create a,b -n 3 | grep -c ssh)" = 6 ]; }
check "-n repeats each host" repeated
empty_name() { refuses 1 "host 1 of .a,,b." "$shoal" hosts create a,,b && exits 1 "$shoal" hosts create a,; }
check "an empty name is refused" empty_name
forms() {
    local form
    cat >o <<'JSON'
{"backend":"ring","hosts":[{"ssh":"a","ips":["10.0.0.1"],"rdma":[null,"d0"]},
    {"ssh":"b","ips":["10.0.0.2"],"rdma":[["d1","d2"],null]}]}
JSON
    for form in object list plain matrix; do
        "$shoal" hosts convert o --form $form >$form && "$shoal" hosts check $form >/dev/null ||
            { cat $form; return 1; }
    done
    gives '["10.0.0.1:32323","10.0.0.2:32324"]' squeezed plain &&
        gives '[[null,"d0"],[["d1","d2"],null]]' squeezed matrix &&
        "$shoal" hosts convert list --form object >back && sed 's/"ring"/""/' object | cmp - back &&
        prints '"ssh": "10.0.0.1"' "$shoal" hosts convert plain --form list 2>/dev/null
}
check "every form converts to every other that can represent it" forms
unfilled() {
    echo '["10.0.0.1:32323", "10.0.0.2:32324"]' >plain; echo '[[null,"d0"],["d1",null]]' >matrix
    refuses 1 "host 0 has no .rdma." "$shoal" hosts convert plain --form matrix &&
        refuses 1 "host 0 has neither" "$shoal" hosts convert matrix --form object
}
check "a form that the file has too little data for is refused" unfilled
wrong() { # TEXT WORDS: check exits with 1 and prints the words
    printf '%s' "$1" >bad
    exits 1 "$shoal" hosts check bad && grep -qF -- "$2" out || { echo "$1: $(cat out)"; return 1; }
}
mistakes() {
    wrong '[' 'line 1' && wrong '7' 'must be a list or an object' && wrong '[]' 'has 0 hosts' &&
        wrong '{}' "'hosts' must be a list" && wrong '{"hosts":[{"ips":[]}]}' "'ssh' of host 0" &&
        wrong '[{"ssh":"a"},{"ssh":"b","ips":"x"}]' "'ips' of host 1 must be a list" &&
        wrong '["10.0.0.1"]' 'entry 0' && wrong '[["10.0.0.1:1"],[]]' 'entry 1 is an empty list' &&
        wrong '{"envs":["A"],"hosts":[{"ssh":"a"}]}' 'envs[0]' &&
        wrong '[[null,"a"],["b"]]' 'row 1 has 1 entries' &&
        wrong '[[null,7],["b",null]]' 'row 0, column 1' && wrong '[["d",null],["b",null]]' 'row 0, column 0' &&
        wrong '[{"ssh":"a","rdma":[null,"x y"]},{"ssh":"b"}]' "rdma[1] of host 0 'x y' is not the name of a device" &&
        wrong '{"backend":"gloo","hosts":[{"ssh":"a"}]}' "'gloo' is not a backend" &&
        wrong '["10.0.0.1:9000","10.0.0.1:9000"]' 'has the address 10.0.0.1:9000 of host 0' &&
        wrong '[{"ssh":"a","ips":["10.0.0.1"]},{"ssh":"b","ips":["10.0.0.1"]}]' 'has the address 10.0.0.1 of host 0' &&
        wrong '[{"ssh":"a","ips":["127.0.0.1"]},{"ssh":"b","ips":["10.0.0.1"]}]' 'loopback' &&
        wrong '[{"ssh":"a","ips":["0.0.0.0"]},{"ssh":"b","ips":["10.0.0.1"]}]' 'not an address to connect to' &&
        wrong '{"backend":"jaccl","hosts":[{"ssh":"a","rdma":[null,"x"]},{"ssh":"b","rdma":[null,null]}]}' \
            'rdma[1] of host 0 names 1 device, but rdma[0] of host 1 names 0' &&
        wrong '{"backend":"jaccl","hosts":[{"ssh":"a","rdma":[null,"x",null]},{"ssh":"b","rdma":["x",null,"y"]},
            {"ssh":"c","rdma":[null,"y",null]}]}' 'rdma[2] of host 0 names no device, but jaccl needs one'
}
check "every kind of mistake in a hostfile is reported by name" mistakes

# --- settings ---
mkdir -p hub/models--org--tiny/snapshots/abc hub/models--org--tiny/refs
cp "$root"/models/demo/* hub/models--org--tiny/snapshots/abc/ && echo abc >hub/models--org--tiny/refs/main
by_name() {
    prints family env HF_HUB_CACHE="$work/hub" "$shoal" info --model org/tiny &&
        prints '^\[' env MODEL_REPO=org/tiny MODEL_CACHE_DIR="$work/hub" "$shoal" tokenize hi
}
check "a model is found by its name in the cache, in every command" by_name
check "a name that is not found lists where it looked" \
    refuses 1 "/nowhere/hub/models--org--none.*huggingface/hub/models--org--none" \
    env HF_HOME=/nowhere "$shoal" info --model org/none
said() { # LINES...: each is in ./out
    local line
    for line in "$@"; do grep -q -- "$line" out || { echo "no '$line' in:"; cat out; return 1; }; done
}
printf 'API_PORT=9000\nMODEL_REPO=org/tiny\nMODEL_CACHE_DIR=%s/hub\nPOLL_INTERVAL_SECONDS=0.1\n' "$work" >.env
sources() {
    HF_HUB_OFFLINE=1 QUEUE_MAX=9 exits 0 "$shoal" config check --host 127.0.0.1 &&
        said "^port = 9000  # .env:1 API_PORT" "^queue-max = 9  # environment QUEUE_MAX" \
            "^host = 127.0.0.1  # flag" "^slots = 16  # default" \
            "POLL_INTERVAL_SECONDS *from .env:4, has no effect: ranks wait" \
            "^offline = 1  # environment HF_HUB_OFFLINE" "ok *model .*snapshots/abc"
}
check "config check shows where each value came from" sources
printf '%s\n' API_PORT=99999 HTTP_PORT=1 MODEL_REPO=org/none WORKER_HOSTS=10.0.0.1,10.0.0.2 WORKER_SSH=a \
    POLL_INTERVAL_SECONDS=11 REQUEST_FILE_PATH=/x RESPONSE_FILE_PATH=/x DISTRIBUTED_BACKEND=gloo \
    FILE_DESCRIPTOR_SOFT_LIMIT=9 FILE_DESCRIPTOR_HARD_LIMIT=8 broken >.env
faults() {
    exits 1 "$shoal" config check --portt 3 &&
        said "env:1: API_PORT: .99999. is not allowed" "model .org/none. not found" \
            "WORKER_SSH must have equally many" "POLL_INTERVAL_SECONDS.*its value is out of range" \
            "RESPONSE_FILE_PATH.*same file" "DISTRIBUTED_BACKEND: .gloo." "FILE_DESCRIPTOR_HARD_LIMIT must not" \
            "env:12: expected NAME=value" \
            "did you mean --port"
}
check "config check reports every error, not only the first" faults
rm .env
workers() {
    WORKER_HOSTS="127.0.0.2, 127.0.0.3" WORKER_SSH="a, b" "$shoal" hosts create --form list >w &&
        [ "$(grep -c ssh w)" = 3 ] && grep -q '"ssh": "b"' w && grep -q 127.0.0.3 w
}
check "workers from the environment become a hostfile" workers
ctrl() { # [flags]: two ranks that get the address from the environment
    local pid linktest=("$shoal" linktest --quick --sizes 4K --rounds 1 --join-timeout 20)
    CTRL_PORT=$(free_port); export CTRL_PORT CTRL_HOST=127.0.0.1
    "${linktest[@]}" --rank 1 "$@" >/dev/null 2>&1 & pid=$!
    "${linktest[@]}" --rank 0 "$@" | grep verdict && wait $pid
}
controlled() {
    ctrl --ranks 2 && echo "[\"127.0.0.1:$(free_port)\", \"127.0.0.1:$(free_port)\"]" >pair.json &&
        ctrl --hostfile pair.json
}
check "ranks join at CTRL_HOST and CTRL_PORT; a hostfile overrides them" controlled
fingerprint() {
    local model='"model":\{"dir":"[^"]*","hash":"[0-9a-f]{64}","bytes":[0-9]+\}'
    "$shoal" fingerprint --model "$root/models/demo" >fp &&
        squeezed fp | grep -qE "^\{\"version\":.*\"interfaces\":\[.*$model\}$"
}
check "fingerprint prints JSON with the model in it" fingerprint
alone() {
    prints 'ok *model' "$shoal" doctor --model "$root/models/demo" --port 0 &&
        prints '"ok":.*true' "$shoal" doctor --port 0 --json
}
check "doctor without hosts checks this host" alone

if ! why=$(hosts_can && sshd_can); then
    skip "detect and doctor between hosts" "$why"
    done_testing
fi
hosts_up 3
sshd_up
export SSH_OPTIONS=$ssh_options SHOAL_STATE_DIR=$work/state
# A second network, and limited bandwidth between host 2 and the first.
ip -n ${hosts_tag}sw link add br1 type bridge forward_delay 0
ip -n ${hosts_tag}sw link set br1 up
for i in 1 2 3; do
    ip -n ${hosts_tag}sw link add q$i type veth peer name eth1 netns $hosts_tag$i
    ip -n ${hosts_tag}sw link set q$i master br1 up
    ip -n $hosts_tag$i addr add 10.78.0.$i/24 dev eth1
    ip -n $hosts_tag$i link set eth1 up
done
slow() { # one direction is enough
    ip netns exec ${hosts_tag}2 tc qdisc replace dev eth0 root tbf rate 80mbit burst 64k latency 50ms
}
model=$work/model && mkdir "$model" && cp "$root"/models/demo/* "$model/"
detect() { # WANTED CODE [hosts and flags]
    exits "$1" on 1 "$shoal" hosts detect "${@:2}"
}
faster() {
    detect 0 10.77.0.1 h2 h3 --out "$work/found.json" && cat out &&
        grep -qE "10.77.0.1 - h2 +10.77.0.0/24 .*0.0[0-9] Gbit/s +slower" out &&
        grep -qE "10.77.0.1 - h2 +10.78.0.0/24 .*Gbit/s +\* best" out &&
        [ "$(grep -o "10\.78\.0\.[123]" "$work/found.json" | tr '\n' ' ')" = "10.78.0.1 10.78.0.2 10.78.0.3 " ] &&
        "$shoal" hosts check "$work/found.json"
}
if slow; then
    check "detect picks the faster of two networks for every host, and shows why" faster
else
    skip "detect picks the faster of two networks" "tc has no tbf here"
fi
address() { echo "(10\.7[78]\.0\.|fd77::)$1"; } # any may be the fastest: except for host 2 they differ by noise only
mkdir -p home/.ssh && printf 'Host *\n  User root\nhost h1 10.77.0.2\nHost=h3\nHost !h9 h?\n' >home/.ssh/config
known_to_ssh() {
    local first; first="\{\"ssh\":\"h1\",\"answered\":true,\"address\":\"$(address 1)\"\}"
    exits 0 on 1 env HOME="$work/home" "$shoal" hosts detect --json &&
        squeezed out | grep -qE "\"hosts\":\[$first,\{\"ssh\":\"10.77.0.2\",.*\{\"ssh\":\"h3\""
}
check "without names it tries the hosts in the ssh configuration" known_to_ssh

absent() {
    on 3 mount --bind /dev/null "$(readlink -f "$shoal")"
    detect 0 h1 h3 --out "$work/ping.json"; local rc=$?
    on 3 umount "$(readlink -f "$shoal")"
    [ $rc = 0 ] && grep -q "warning *program *h3 *shoal is not installed" out &&
        grep -qE "h1 - h3 .* us +- +\* best" out && grep -qE "$(address 3)" "$work/ping.json" || { cat out; return 1; }
}
check "a host without the program is only checked for reachability, and the output says so" absent

clash() {
    on 2 ip route add default via 10.78.0.254 dev eth0 onlink && on 2 ip link set eth1 mtu 1400
    detect 1 h1 h2; local rc=$?
    on 2 ip route del default; on 2 ip link set eth1 mtu 1500
    [ $rc = 0 ] && grep -q "subnet *h2 *10.78.0.0/24 on eth1 holds the default gateway 10.78.0.254" err &&
        grep -q "10.254.0.0/30" err && grep -q "mtu *h1 - h2 *in 10.78.0.0/24 .*1400" err
}
check "a network that contains the default gateway is reported, and unequal MTUs" clash

# Two cables between hosts 1 and 3, both in one bridge; flooding is off, or the loop would take this machine down.
bridged() { on 3 ip link show br9 | grep -q "state UP" && on 1 ip link show br9 | grep -q "state UP"; }
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
    within 2 bridged
    on 1 "$shoal" hosts detect h1 h3 >out 2>err
    for i in c1 c2 br9; do ip -n ${hosts_tag}1 link del $i; done; ip -n ${hosts_tag}3 link del br9
    grep -qE "(warning|failure) *bridge *h1 - h3 .*(no|without) spanning tree" err
}
if command -v bridge >/dev/null; then check "two cables between the same hosts in one bridge are reported" bridges
else skip "two cables between the same hosts in one bridge are reported" "needs bridge"; fi

cat >hosts.json <<'JSON'
[{"ssh":"h1","ips":["10.78.0.1"]},{"ssh":"h2","ips":["10.78.0.2"]},{"ssh":"h3","ips":["10.78.0.3"]}]
JSON
doctor() {
    local want=$1; shift
    exits "$want" on 1 "$shoal" doctor --hostfile "$work/hosts.json" --model "$model" --port 0 "$@"
}
counts() { grep -cE "$1" out; }
good() {
    doctor 0 && cat out && [ "$(counts "^ok +(ssh|program|clock|memory|model|port) +h[123]")" -ge 18 ] &&
        [ "$(counts "^(ok|warning) +link +h[123] - h[123] .* us round trip, [0-9.]+ Gbit")" = 3 ] &&
        grep -q "0 failures" out
}
check "doctor reports no problems for three good hosts" good
# Two faults per run, since a run over three hosts takes seconds.
models() {
    mkdir -p other && cp "$model"/* other/ && sed -i '1s/{/{ /' other/config.json &&
        on 2 mount --bind "$work/other" "$model" && on 3 mount -t tmpfs t "$model"
    doctor 1; local rc=$?; on 3 umount "$model"; on 2 umount "$model"
    [ $rc = 0 ] && grep -qE "^warning +model +h3 +.*its share from rank 0" out &&
        grep -qE "^failure +model +h2 +.*differs from the model on h1" out && grep -qE "^ok +model +h1" out &&
        grep -q "rsync -a" out
}
check "doctor names the host without the model, and the one with a different model" models
listens() { on 1 ss -ltn | grep -q :32323; }
port_and_version() {
    sed "s/$("$shoal" --version | sed "s/shoal //")/9.9.9/g" "$shoal" >newer && chmod +x newer &&
        on 2 mount --bind "$work/newer" "$(readlink -f "$shoal")"
    on_exec 1 "$shoal" linktest --hostfile "$work/hosts.json" --rank 0 --insecure --join-timeout 30 >/dev/null 2>&1 &
    local pid=$!
    within 3 listens
    doctor 1; local rc=$?; kill -9 $pid; wait $pid 2>/dev/null; on 2 umount "$(readlink -f "$shoal")"
    [ $rc = 0 ] && grep -qE "^failure +port +h1 +.*10.78.0.1:32323.*in use" out &&
        grep -qE "^failure +program +h2 +version 9.9.9" out
}
check "doctor reports a port that is in use, and a version that differs" port_and_version
wrong_key() {
    keys_revoke 2; doctor 1; local rc=$?; keys_restore 2
    [ $rc = 0 ] && grep -qE "^failure +ssh +h2 .*key was refused" out && grep -q "ssh-copy-id" out &&
        grep -qE "^ok +ssh +h3" out
}
check "doctor names a host that refuses the key" wrong_key
down() {
    cut 3; ip -n ${hosts_tag}sw link set q3 down
    doctor 1 --ssh-timeout 2 --json; local rc=$?
    heal 3; ip -n ${hosts_tag}sw link set q3 up
    [ $rc = 0 ] && tr -d '\t\n' <out | grep -q '"level":"failure","check":"ssh","subject":"h3"' &&
        tr -d '\t\n' <out | grep -q '"ok":false'
}
check "doctor names a host that is down, in JSON too" down
foreign() {
    echo '[{"ssh":"h1","ips":["10.78.0.1"]},{"ssh":"h2","ips":["10.99.0.2"]}]' >hosts.json
    doctor 1 && grep -qE "^failure +port +h2 +.*10.99.0.2" out && grep -q "hosts detect" out
}
check "doctor reports an address that does not belong to the host" foreign
plain() {
    echo '["10.78.0.1:9000", "10.78.0.2:9000"]' >hosts.json
    doctor 0 && grep -qE "^ok +port +10.78.0.2 +10.78.0.2:9000 is free" out &&
        grep -qE "^ok +link +10.78.0.1 - 10.78.0.2 +10.78.0.2: " out
}
check "doctor reads a list of addresses too" plain
interrupt() {
    on_exec 1 "$shoal" hosts detect h1 h2 h3 >out 2>err & local pid=$!
    sleep 1.5; kill -INT $pid; wait $pid; local code=$?
    [ $code = 130 ] && [ ! -s out ] || { echo "code $code"; cat out; return 1; }
}
check "Ctrl-C stops a detection cleanly" interrupt
left() { local i; for i in 1 2 3; do shoals_on $i; done; }
check "no probe is left running" within 2 gives "" left

cd / && rm -rf "$work"
done_testing
