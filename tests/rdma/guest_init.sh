#!/bin/busybox sh
# Process 1 of a guest: mounts, drivers, networks and RDMA devices, then the script of the
# test, with its rank and the number of guests. The kernel's arguments say which.
/bin/busybox --install -s /bin
export PATH=/bin:/tools HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs tmp /tmp
argument() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
rank=$(argument rank)
while read -r module; do insmod "/modules/$module" || echo "guest: no module $module"; done </modules/order
ulimit -l unlimited
ip=/tools/ip # the shell prefers the one of busybox
hostname "guest$rank"; $ip link set lo up
$ip addr add "10.78.0.$((rank + 1))/24" dev eth0; $ip link set eth0 up
i=0 peer=0
while [ $peer -lt "$(argument ranks)" ]; do
    if [ $peer != "$rank" ]; then
        low=$rank high=$peer; [ $rank -gt $peer ] && low=$peer high=$rank
        i=$((i + 1)); $ip addr add "10.79.$low$high.$((rank + 1))/24" dev eth$i; $ip link set eth$i mtu 4200 up
        rdma link add rxe$((i - 1)) type rxe netdev eth$i
    fi
    peer=$((peer + 1))
done
tries=0 # the GIDs of the addresses come a moment later
until [ "$(ibv_devinfo -v 2>/dev/null | grep -c "::ffff:10.79")" = $i ]; do
    tries=$((tries + 1)); [ $tries = 50 ] && break; usleep 100000
done
read -r up _ </proc/uptime; echo "guest: ready after $up s"
cd /test && sh guest.sh "$rank" "$(argument ranks)"
dmesg | grep -E 'Oops|BUG:|WARNING:|general protection' | head -n 5
echo "guest: done"; poweroff -f
