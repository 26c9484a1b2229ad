#!/usr/bin/env bash
# `shoal hosts detect` with direct cables and RDMA devices: three hosts made of network namespaces, with a cable between
# every two and one cable more between the first two. The devices are files: each host has a /sys/class/infiniband of
# its own.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
work=$(mktemp -d) && cd "$work" || exit 1
squeezed() { tr -d ' \t\n' <"$1"; }

if ! why=$(hosts_can && sshd_can); then skip "direct cables" "$why"; cd / && rm -rf "$work"; done_testing; fi
hosts_up 3
sshd_up
export SSH_OPTIONS=$ssh_options SHOAL_STATE_DIR=$work/state
units=/etc/systemd/system

cable() { # I J NAME: the same interface name at both ends
    ip -n "$hosts_tag$1" link add "$3" type veth peer name "$3" netns "$hosts_tag$2"
    ip -n "$hosts_tag$1" link set "$3" up; ip -n "$hosts_tag$2" link set "$3" up
}
for i in 1 2 3; do on $i ip route add default via 10.77.0.254; done # so eth0 is not a direct cable
cable 1 2 c12; cable 1 2 d12; cable 2 3 c23; cable 1 3 c13
class() { # I: a /sys/class of its own, with the interfaces of the host in it
    mkdir -p "$work/units$1"
    on "$1" sh -c "mkdir -p /run/class $units && mount --bind /sys/class /run/class && mount -t tmpfs t /sys/class &&
        mkdir /sys/class/net /sys/class/infiniband && mount --bind /run/class/net /sys/class/net &&
        mount --bind '$work/units$1' $units"
}
device() { # I NAME INTERFACE STATE
    local dir=/sys/class/infiniband/$2/ports/1
    on "$1" sh -c "mkdir -p $dir/gids $dir/gid_attrs/ndevs && echo '$4' >$dir/state && echo Ethernet >$dir/link_layer &&
        echo fe80:0000:0000:0000:0000:0000:0000:000$1 >$dir/gids/0 && echo $3 >$dir/gid_attrs/ndevs/0"
}
if ! why=$( (class 1 && class 2 && class 3) 2>&1); then
    skip "RDMA devices of hosts" "cannot mount there: $(tail -n 1 <<<"$why")"; cd / && rm -rf "$work"; done_testing
fi
device 1 ra c12 "4: ACTIVE"; device 1 rb d12 "4: ACTIVE"; device 1 rc c13 "4: ACTIVE"
device 2 ra c12 "4: ACTIVE"; device 2 rb d12 "4: ACTIVE"; device 2 rc c23 "4: ACTIVE"
device 3 ra c13 "4: ACTIVE"; device 3 rb c23 "4: ACTIVE"
settled() { # no link-local address is being checked for duplicates any more
    local i; for i in 1 2 3; do on $i ip -6 addr show | grep -q tentative && return 1; done; return 0
}
within 10 settled

detect() { exits "$1" on 1 "$shoal" hosts detect "${@:2}"; } # CODE [hosts and flags]
rdma_of() { squeezed "$1" | grep -o '"rdma":[^}]*' | tr '\n' ' '; }
mesh='"rdma":[null,["ra","rb"],"rc"] "rdma":[["ra","rb"],null,"rc"] "rdma":["ra","rb",null] '
cables() {
    detect 0 h1 h2 h3 --backend jaccl --env A=1 --env "B=x y" --output-hostfile "$work/mesh.json" ||
        { cat err; return 1; }
    grep -qE "h1 - h2 +c12 - c12 +ra - ra +direct cable" out &&
        grep -qE "h1 - h3 +c13 - c13 +rc - ra +direct cable" out &&
        grep -qE "^h2 +rb +ACTIVE +Ethernet +d12 .* 0:fe80:" out && ! grep -qE "eth0 - eth0 .*direct" out &&
        gives "$mesh" rdma_of mesh.json && squeezed mesh.json | grep -q '"backend":"jaccl","envs":\["A=1","B=xy"\]' &&
        "$shoal" hosts check mesh.json >/dev/null || { cat out mesh.json; return 1; }
}
check "detect finds the cables by trying, and writes the rdma fields" cables
ethernet() {
    detect 0 --hosts h1,h2 --over ethernet && squeezed out | grep -q '"backend":"",.*"rdma":\[\]}\]}$' ||
        { cat out; return 1; }
}
check "--over ethernet leaves RDMA out" ethernet
at_odds() {
    detect 1 h1 h2 --backend jaccl --over ethernet && grep -q "jaccl does not go with --over ethernet" err &&
        [ ! -s out ]
}
check "--over ethernet with an RDMA backend is refused" at_odds
down() {
    on 1 sh -c "echo '1: DOWN' >/sys/class/infiniband/rc/ports/1/state"
    detect 1 h1 h3 --backend jaccl && grep -q "jaccl: no RDMA link between h1 and h3" err && grep -q "rc is DOWN" err &&
        [ ! -s out ]
    local rc=$?
    on 1 sh -c "echo '4: ACTIVE' >/sys/class/infiniband/rc/ports/1/state"
    return $rc
}
check "a backend that the cables do not allow is refused, and the missing link is named" down

addresses() { # of cables, without their network
    local i
    for i in 1 2 3; do on $i ip -o -4 addr show | sed -nE 's|.* 10.254.([0-9.]+/30) .*|\1|p'; done | sort | tr '\n' ' '
}
four="0.1/30 0.10/30 0.13/30 0.14/30 0.2/30 0.5/30 0.6/30 0.9/30 "
asks() {
    detect 1 h1 h2 h3 --dot --auto-setup </dev/null && grep -q "pass --yes" err &&
        grep -q "ip addr replace 10.254.0.1/30 dev c12" err &&
        gives "" addresses
}
check "--auto-setup shows the commands, and does nothing without an answer" asks
graph() { # in ./out
    [ "$(head -n 1 out)" = "graph G {" ] && [ "$(grep -c -- " -- " out)" = 7 ] &&
        grep -q '^h0 -- h1 \[label="d12/d12"\];$' out
}
setup() {
    detect 0 --hosts h1,h2,h3 --dot --auto-setup --yes && graph && gives "$four" addresses &&
        on 1 "$shoal" probe <<<"10.254.0.2:22 - knock" | grep -q rtt_us && [ -z "$(ls units1)" ] ||
        { cat out err; return 1; }
}
check "--auto-setup --yes gives each direct cable a /30; --dot draws the cables" setup
again() {
    detect 0 h1 h2 --over thunderbolt --auto-setup && grep -q "nothing to do" err && gives "$four" addresses &&
        squeezed out | grep -qE '"ssh":"h1","ips":\["10.254.0.[15]"\]' || { cat out err; return 1; }
}
check "a second run has nothing to do, and --over thunderbolt uses the new addresses" again
keep_later() {
    detect 0 h1 h2 --auto-setup --keep --yes && gives "$four" addresses && gives 3 unit_count 1 &&
        gives 1 grep -cE "ssh +h1 " err && gives 1 grep -cE "setup +h1 " err || { cat err; return 1; }
    detect 0 h1 h2 --dot --auto-setup --keep && gives 3 record_count || { cat err; return 1; }
}
unit_count() { find "units$1" -name 'shoal-cable-*.service' -type f | wc -l; }
record_count() { cat state/cables.* | grep -cE ' 10.254.0.(1|5|9)/30 '; }
check "--keep after a setup without it keeps the same addresses; nothing is reported twice" keep_later
undo() {
    detect 1 h1 h2 h3 --undo </dev/null && grep -q "rm $units/shoal-cable-d12.service" err &&
        gives "$four" addresses && detect 0 h1 h2 h3 --undo --yes &&
        gives "" addresses && [ -z "$(ls state)" ] && detect 0 h1 h2 h3 --undo && grep -q "nothing to undo" out
}
check "--undo takes it back" undo
kept() {
    on 2 ip addr add 10.254.0.1/24 dev c23 # whatever a host uses already is left alone
    detect 0 h1 h2 --dot --auto-setup --keep -y || { cat err; return 1; }
    on 2 ip addr del 10.254.0.1/24 dev c23
    addresses | grep -q "1.1/30 1.2/30" && [ -e units1/shoal-cable-c12.service ] &&
        grep -qx "ExecStart=.*ip addr replace 10.254.1.1/30 dev c12" units1/shoal-cable-c12.service &&
        [ -e units2/sys-subsystem-net-devices-c12.device.wants/shoal-cable-c12.service ] ||
        { addresses; ls -R units1; return 1; }
    detect 0 h1 h2 --undo --yes && [ -z "$(ls units1)$(ls units2)" ]
}
check "--keep restores the addresses at every start, until they are undone" kept
read_only() { # a host where nothing may be written: reported, and the exit code says so
    on 2 mount -t tmpfs -o ro t "$units"
    detect 1 h1 h2 --dot --auto-setup --keep --yes; local rc=$?
    on 2 umount "$units"
    [ $rc = 0 ] && grep -qE "failure +setup +h2 .*[Rr]ead-only" err && detect 0 h1 h2 --undo --yes && gives "" addresses
}
check "a host where the setup fails is named, and can be undone" read_only

cd / && rm -rf "$work"
done_testing
