#!/usr/bin/env bash
# Machines that join by a token: four hosts on two networks, found by multicast. One server is shared by most claims.
#   h1  10.77.0.1, 10.78.0.1   the server, and the router between the networks
#   h2  10.77.0.2              h3  10.78.0.3              h4  10.77.0.4 (slow), 10.78.0.4
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
shoal=$SHOAL_BUILD/shoal
why=$(hosts_can) || { skip "machines that join by a token" "$why"; done_testing; }
work=$(mktemp -d /tmp/shoal-join-XXXXXX) && cd "$work" || exit 1
unset "${!SHOAL_@}" TOKEN
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null; hosts_down; cd /; rm -rf "$work"' EXIT

link() { # HOST ADDRESS: a second interface, on the second network
    ip -n ${hosts_tag}sw link add "q$1" type veth peer name eth1 netns "$hosts_tag$1"
    ip -n ${hosts_tag}sw link set "q$1" master br1 up
    ip -n "$hosts_tag$1" addr add "$2/24" dev eth1
    ip -n "$hosts_tag$1" link set eth1 up
}
networks() {
    hosts_up 4
    ip -n ${hosts_tag}sw link add br1 type bridge forward_delay 0 mcast_snooping 0
    ip -n ${hosts_tag}sw link set br1 up
    local i
    for i in 1 3 4; do link $i 10.78.0.$i; done
    ip -n "${hosts_tag}3" link del eth0
    ip -n "${hosts_tag}2" route add 10.78.0.0/24 via 10.77.0.1
    ip -n "${hosts_tag}3" route add 10.77.0.0/24 via 10.78.0.1
    ip netns exec "${hosts_tag}1" sysctl -qw net.ipv4.ip_forward=1
}
networks >/dev/null 2>&1
trap 'kill -9 "${pids[@]}" 2>/dev/null; hosts_down; cd /; rm -rf "$work"' EXIT # hosts_up has its own

flags=(--model "$root/models/demo" --threads 1)
start() { # NAME HOST command...: its pid is ${pid[NAME]}
    local name=$1 host=$2; shift 2
    on_exec "$host" "$shoal" "$@" "${flags[@]}" >>"$name.log" 2>&1 &
    pid[$name]=$! pids+=($!)
}
declare -A pid
server() { # NAME HOST FLAGS...
    local name=$1 host=$2; shift 2
    start "$name" "$host" serve --p2p --port 8100 --runtime-dir "$work" --state-dir "$work/state-$name" --degrade-after 1 \
        --rejoin-after 1 "$@"
    within $((20 * slow)) grep -q 'shoal join' "$name.log"
    token=$(grep -o 'shoal1[a-z2-7]*' "$name.log" | tail -n 1)
}
join() { # NAME HOST [FLAGS...]
    local name=$1 host=$2; shift 2
    start "$name" "$host" join "$token" --state-dir "$work/state-$name" "$@"
}
has() { grep -qE -- "$2" "$1" || { tail -n 12 "$1"; return 1; }; } # FILE PATTERN
group() { # HOST SIZE MISSING
    on "$1" curl -s -m 5 http://127.0.0.1:8100/health >health
    has health "\"world_size\":$2," && has health "\"missing\":\\[$3\\]" && has health '"ok":true'
}
gone() { not kill -0 "$1" 2>/dev/null; }

# Numbers follow node ids at the first forming, whoever comes first.
node() { mkdir -p "state-$1" && chmod 700 "state-$1" && echo "$2" >"state-$1/node-1" && chmod 600 "state-$1/node-1"; }
node b 0000000000000000000000000000000b
node a 0000000000000000000000000000000a
server one 1 --min-ranks 3
join b 2
check "a server waits for as many ranks as it was told to" within $((20 * slow)) has b.log 'found the server on h1'
check "a waiting machine is not an error" not grep -q 'rank 1' b.log
join a 3
check "and serves when they are there, on two networks" within $((30 * slow)) group 1 3 ''
check "ranks are numbered by node id" eval "has a.log 'rank 1\\] ready' && has b.log 'rank 2\\] ready'"
join c 4 --log-level debug
ip netns exec "${hosts_tag}4" tc qdisc add dev eth0 root netem delay 20ms 2>/dev/null || slow_eth0=no
check "a later one is appended" within $((30 * slow)) eval "group 1 4 '' && has c.log 'rank 3\\] ready'"
done_testing
