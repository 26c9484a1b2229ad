#!/usr/bin/env bash
# Machines that join by a token: four hosts on several networks. One server is shared by most claims.
#   h1  10.77.0.1, 10.78.0.1, 10.79.0.1   the server, and the router between the first two networks
#   h2  10.77.0.2     h3  10.78.0.3     h4  10.79.0.4, over a wire that loses 30 % of the packets; later also 10.77.0.4
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
shoal=$SHOAL_BUILD/shoal
why=$(hosts_can) || { skip "machines that join by a token" "$why"; done_testing; }
work=$(mktemp -d /tmp/shoal-join-XXXXXX) && cd "$work" || exit 1
unset "${!SHOAL_@}" TOKEN
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
declare -A pid
end() { # stops what is left, without a word
    trap - EXIT
    disown -a; kill -9 "${pid[@]}" 2>/dev/null
    hosts_down; cd / && rm -rf "$work"
}

net() { ip -n "$hosts_tag$1" "${@:2}"; }
networks() {
    local i
    hosts_up 4; trap end EXIT
    ip -n ${hosts_tag}sw link add br1 type bridge forward_delay 0 mcast_snooping 0
    ip -n ${hosts_tag}sw link set br1 up
    for i in 1 3; do
        ip -n ${hosts_tag}sw link add q$i type veth peer name eth2 netns "$hosts_tag$i"
        ip -n ${hosts_tag}sw link set q$i master br1 up
        net $i addr add 10.78.0.$i/24 dev eth2; net $i link set eth2 up
    done
    for i in 1 2 3 4; do # every machine with containers has this address: it leads nowhere
        net $i link add docker0 type bridge; net $i addr add 172.17.0.1/16 dev docker0; net $i link set docker0 up
    done
    net 3 link del eth0
    net 4 link set eth0 down
    net 2 route add 10.78.0.0/24 via 10.77.0.1
    net 3 route add 10.77.0.0/24 via 10.78.0.1
    on 1 sysctl -qw net.ipv4.ip_forward=1
}
lossy() { # between h1 and h4
    local i
    [ -c /dev/net/tun ] || { echo "no /dev/net/tun"; return 1; }
    ${CC:-cc} -O2 -D_GNU_SOURCE -o wire "$root/tests/cluster/wire.c" || return 1
    ./wire 2000 ${hosts_tag}1 ${hosts_tag}4 30 >wire.out 2>&1 &
    pid[wire]=$!
    within 5 grep -q ready wire.out || return 1
    for i in 1 4; do net $i addr add 10.79.0.$i/24 dev eth1; net $i link set eth1 up; done
}
networks

start() { # NAME HOST command...
    local name=$1 host=$2; shift 2
    on_exec "$host" "$shoal" "$@" --model "$root/models/demo" --threads 1 --state-dir "$work/state-$name" \
        >>"$name.log" 2>&1 &
    pid[$name]=$!
}
server() { # NAME HOST FLAGS...: its token is in NAME.token
    local name=$1 host=$2; shift 2
    start "$name" "$host" serve --p2p --port 8100 --runtime-dir "$work" --degrade-after 1 --rejoin-after 1 "$@"
    within $((20 * slow)) grep -q 'shoal join' "$name.log"
    grep -o 'shoal1[a-z2-7]*' "$name.log" | tail -n 1 >"$name.token"
}
join() { # NAME HOST SERVER FLAGS...
    start "$1" "$2" join "$(cat "$3.token")" "${@:4}"
}
has() { grep -qE -- "$2" "$1" || { tail -n 12 "$1"; return 1; }; } # FILE PATTERN
group() { # HOST SIZE MISSING
    on "$1" curl -s -m 5 http://127.0.0.1:8100/health >"health.$1"
    has "health.$1" "\"world_size\":$2," && has "health.$1" "\"missing\":\\[$3\\]" && has "health.$1" '"ok":true'
}
node() { # NAME ID: as if it had joined before
    mkdir -m 700 "state-$1" && (umask 077 && echo "$2" >"state-$1/node-1")
}
signal() { kill "-$1" "${pid[$2]}" $(pgrep -P "${pid[$2]}"); } # to a supervisor and its rank

# Numbers follow node ids at the first forming, whoever comes first.
node b 0000000000000000000000000000000b
node a 0000000000000000000000000000000a
server one 1 --min-ranks 3 --log-level debug
join b 2 one
check "a server waits for as many ranks as it was told to" within $((20 * slow)) has b.log 'found the server on h1'
join a 3 one
check "and serves when they are there, on two networks" within $((30 * slow)) group 1 3 ''
numbered() { has a.log 'rank 1\] ready' && has b.log 'rank 2\] ready'; }
check "ranks are numbered by node id" within 5 numbered
TOKEN=$(cat one.token) start p 1 worker p2p-mlx --mlx-listen-port 40404
check "TOKEN=... worker p2p-mlx joins as well, on the same machine" within $((30 * slow)) group 1 4 ''
check "at the port that it was told to use" on 1 bash -c 'exec 3<>/dev/tcp/10.77.0.1/40404'
kill -TERM "${pid[p]}"
check "and leaves on SIGTERM" within $((20 * slow)) group 1 3 ''
quiet() {
    local token; token=$(cat one.token)
    not grep -qF "${token:6:24}" a.log b.log && not grep -qF "$token" /proc/"${pid[b]}"/cmdline
}
check "no token in logs, nor on command lines once it was read" quiet

# Another cluster, with another token, that shares a machine and its networks with the first. It has time until later.
lossy >lossy.out 2>&1 && server two 4 --peer-timeout-ms 20000 && join e 1 two --peer-timeout-ms 20000

signal STOP b
check "the group goes on without a machine that sleeps" within $((30 * slow)) group 1 2 2
signal CONT b
check "and takes it in again, with its number" within $((30 * slow)) group 1 3 ''
move() { net "$1" addr del "10.77.0.$1/24" dev eth0; net "$1" addr add "10.77.0.$1$1/24" dev eth0; }
move 1; move 2; net 2 route add 10.78.0.0/24 via 10.77.0.11
moved() { group 1 3 '' && has b.log 'found .*10\.77\.0\.11:'; }
check "server and worker find each other again when both have other addresses" within $((40 * slow)) moved

if [ -n "${pid[e]}" ]; then
    check "meanwhile, a machine was let into another cluster while 30 % of the packets are lost" \
        within $((60 * slow)) has two.log 'rank 1 at .* comes in'
    disown "${pid[two]}" "${pid[e]}"; kill -9 "${pid[two]}" "${pid[e]}"
else skip "a machine is let into another cluster while 30 % of the packets are lost" "$(tail -n 1 lossy.out)"; fi

net 4 link set eth0 up; net 4 route add 10.78.0.0/24 via 10.77.0.11
join c 4 one
check "a machine that joins later gets the next number" within $((40 * slow)) group 1 4 ''
nearest() { has one.log 'rank 4 has joined from (10\.77\.0\.4:|\[fe80:.*%eth0\])'; } # 3 was p
check "and uses the nearest of its addresses" nearest
cp -a state-c state-d && rm -f state-d/*.lock
join d 2 one # takes some seconds

find() { on "$1" "$shoal" hosts find "$(cat "$2.token")" "${@:3}"; } # HOST SERVER FLAGS...
found() {
    find 1 one >found && has found '^0 +h1 ' && has found '^1 +h3 .*10.78.0.3' && has found '^2 +h2 .*10.77.0.22'
}
check "hosts find lists who is there" found
written() { find 1 one --out "$work/hosts.json" && "$shoal" hosts check hosts.json && has hosts.json 10.77.0.22; }
check "and writes a hostfile" written
"$shoal" token >stranger.token
check "with another token nobody answers" refuses 1 'no rank answers' find 2 stranger
garbage() {
    on 2 bash -c 'for i in {1..500}; do head -c $((i % 3 == 0 ? 512 : i)) /dev/urandom >/dev/udp/10.77.0.11/32322; done'
    find 2 one >found && has found '^0 +h1 '
}
check "garbage on its port does not keep it from answering" garbage
mistyped() {
    local token; token=$(cat one.token)
    refuses 1 'checksum' on 2 "$shoal" join "${token:0:20}$([ "${token:20:1}" = a ] && echo b || echo a)${token:21}"
}
check "a mistyped token is noticed at once" mistyped

check "one with the node id of another makes itself a new one, and says so" \
    within $((40 * slow)) has d.log 'another rank has the node id .* is now'
check "and comes in" within $((30 * slow)) group 1 5 ''
kill -TERM "${pid[c]}" "${pid[d]}"
check "they leave as they came" within $((20 * slow)) group 1 3 ''
kill -TERM "${pid[one]}"
waiting() { has a.log 'waits for the next one' && has b.log 'waits for the next one'; }
check "machines that joined outlive the server" within $((20 * slow)) waiting
within 20 not kill -0 "${pid[one]}"
server one 1 --min-ranks 3
check "and come to the next one with their token by themselves" within $((60 * slow)) group 1 3 ''
kill -TERM "${pid[one]}" "${pid[a]}" "${pid[b]}"
ended() { not kill -0 "${pid[one]}" && not kill -0 "${pid[a]}" && not kill -0 "${pid[b]}"; }
check "all end together" within 20 ended

# h3 is behind a router for h2, so multicast does not get there; the token says where to go.
server far 2 --p2p-address 10.77.0.22
server small 1 --kv-reserve-mb 100000000
join f 3 far
check "an address in the token leads across a router" within $((40 * slow)) group 2 2 ''
check "a server without the memory for its model waits, and says how much is missing" \
    within $((20 * slow)) has small.log 'GiB are missing; waiting for more ranks'
end
done_testing
