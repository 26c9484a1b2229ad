# Several hosts on one machine, for tests: source this after tap.sh. Each host is a network namespace with an address of
# its own (10.77.0.I and fd77::I, on a switch in another namespace), a mount namespace with its own /dev/shm and
# /etc/hosts (names h1, h2, ...), and a matching host name. The network of the machine is not touched. Needs root;
# hosts_can prints the reason when it cannot work.
#   hosts_up N; on I command...; on_exec I command... &; cut I; heal I; shoals_on I; hosts_down (also on exit)
#   host_home I FOLDER WORK     gives a host its own home and /tmp (call sshd_up first)
hosts_tag=sh$$
hosts_dir=

hosts_can() {
    local said
    [ "$(id -u)" = 0 ] || { echo "needs root"; return 1; }
    grep -qE '^ *0 +0 +4294967295$' /proc/self/uid_map || { echo "needs root outside of user namespaces"; return 1; }
    command -v ip >/dev/null || { echo "needs iproute2"; return 1; }
    said=$(hosts_try 2>&1) && return
    echo "cannot create namespaces here: $(tail -n 1 <<<"$said")"; return 1
}
# Tries everything that a host needs: a container may allow some of it and forbid the rest.
hosts_try() {
    local name=${hosts_tag}try rc
    ip netns add "$name" && ip -n "$name" link add br0 type bridge &&
        ip -n "$name" link add p0 type veth peer name p1 &&
        ip netns exec "$name" unshare --mount --uts --propagation private sh -c \
            'hostname try && mount -t tmpfs t /dev/shm && mount --bind /etc/hosts /etc/hosts'; rc=$?
    ip netns del "$name" 2>/dev/null
    return $rc
}

# own_net command...: runs it in a network namespace of its own if possible, since it chooses its own ports
own_net() {
    if hosts_can >/dev/null; then unshare --net sh -c 'ip link set lo up && exec "$0" "$@"' "$@"; else "$@"; fi
}

hosts_up() {
    local n=$1 i j
    hosts_count=$n
    hosts_dir=$(mktemp -d)
    trap hosts_down EXIT
    ip netns add ${hosts_tag}sw
    ip -n ${hosts_tag}sw link add br0 type bridge forward_delay 0
    ip -n ${hosts_tag}sw link set br0 up
    {
        echo "127.0.0.1 localhost"
        for j in $(seq "$n"); do echo "10.77.0.$j h$j"; echo "fd77::$j s$j"; done
    } >"$hosts_dir/hosts"
    for i in $(seq "$n"); do
        ip netns add "$hosts_tag$i"
        ip -n "$hosts_tag$i" link set lo up
        ip -n ${hosts_tag}sw link add "p$i" type veth peer name eth0 netns "$hosts_tag$i"
        ip -n ${hosts_tag}sw link set "p$i" master br0 up
        ip -n "$hosts_tag$i" addr add "10.77.0.$i/24" dev eth0
        ip -n "$hosts_tag$i" addr add "fd77::$i/64" dev eth0 nodad
        ip -n "$hosts_tag$i" link set eth0 up
        ip netns exec "$hosts_tag$i" unshare --mount --uts --propagation private sh -c \
            "hostname h$i; mount -t tmpfs t /dev/shm; mount --bind '$hosts_dir/hosts' /etc/hosts; exec sleep 100000" &
        echo $! >"$hosts_dir/$i.pid"
        disown
    done
    for i in $(seq "$n"); do
        for j in $(seq 100); do on "$i" grep -q "h$n" /etc/hosts 2>/dev/null && break; sleep .02; done
    done
}

on() { local i=$1; shift; nsenter -t "$(cat "$hosts_dir/$i.pid")" -n -m -u -- "$@"; }
# For background jobs: after `on_exec 1 x &`, $! is the process of x itself.
on_exec() { local i=$1; shift; exec nsenter -t "$(cat "$hosts_dir/$i.pid")" -n -m -u -- "$@"; }

# The folders of the test and of the program stay visible, even in /root or /tmp.
host_home() {
    local kept=("$3" "$hosts_dir" "$root") dir
    for dir in "${kept[@]}"; do on "$1" sh -c "mkdir -p '/run/kept$dir' && mount --bind '$dir' '/run/kept$dir'"; done
    on "$1" mount --bind "$2" /root && on "$1" mount -t tmpfs t /tmp
    for dir in "${kept[@]}"; do on "$1" sh -c "mkdir -p '$dir' && mount --bind '/run/kept$dir' '$dir'" || exit 1; done
}

shoals_on() { # processes of shoal on a host
    local p
    for p in $(ip netns pids "$hosts_tag$1"); do grep -q '^shoal' "/proc/$p/comm" 2>/dev/null && echo "$p"; done
    return 0
}

cut() { ip -n ${hosts_tag}sw link set p"$1" down; }
heal() { ip -n ${hosts_tag}sw link set p"$1" up; }

hosts_down() {
    [ -n "$hosts_dir" ] || return
    local i
    for i in $(seq "$hosts_count"); do
        kill -9 "$(cat "$hosts_dir/$i.pid")" 2>/dev/null
        ip netns del "$hosts_tag$i"
    done
    ip netns del ${hosts_tag}sw
    rm -rf "$hosts_dir"
    hosts_dir=
}
