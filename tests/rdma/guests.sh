# Guests with RDMA devices: machines in QEMU that run Debian's own kernel with soft-RoCE (rdma_rxe). No root, no KVM.
# The emulator is slow (5 to 20 MB/s between guests): it proves correctness, not speed. Source this after tests/tap.sh.
#   guests_can            whether this machine has everything; if not, says what is missing
#   guests_image FILE...  packs the program, its plugin, the demo model, guest.sh and these files into $guests/image
#   guests_run N PARTS    boots N guests, which run those parts of guest.sh, and waits for them; their output is in
#                         guest0.log, guest1.log, ...
#   guests_report N       turns their claims into tests
# All guests share a network for control connections, eth0 (10.78.0.RANK+1). A cable of its own connects each pair: eth1
# with the device rxe0 to the first of the others, eth2 with rxe1 to the second.
# The kernel is downloaded once (Debian's package, not installed) and kept in $guests.
guests=${SHOAL_BUILD%/*}/rdma
guests_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules="crc32_generic crc32_pclmul virtio_pci virtio_net virtio_rng rdma_rxe ib_uverbs"
# A busy machine delays the timer that the kernel would check.
kernel_flags="console=ttyS0 panic=-1 quiet no_timer_check mitigations=off tsc=reliable"
guest_tools="ibv_devinfo rdma ip tc setpriv ib_send_lat ib_send_bw"

guests_kernel() {
    local package dir=$guests/kernel
    [ -s "$guests/vmlinux" ] && return
    mkdir -p "$dir" && cd "$dir" || return 1
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}')
    if [ -z "$package" ] || ! apt-get -q download "$package" >/dev/null 2>&1; then
        echo "the package linux-image-amd64 cannot be downloaded"; return 1
    fi
    dpkg-deb -x "$package"_*.deb . && rm -f "$package"_*.deb
    depmod -b . "$(ls lib/modules)" && unpack_kernel boot/vmlinuz-* >"$guests/vmlinux.new" &&
        mv "$guests/vmlinux.new" "$guests/vmlinux"
}
# The emulator takes 8 s to unpack a compressed kernel; here it takes one.
unpack_kernel() {
    local at
    for at in $(LC_ALL=C grep -abo "$(printf '\xfd7zXZ')" "$1" | cut -d: -f1); do
        tail -c +$((at + 1)) "$1" | xz -dc 2>/dev/null >"$guests/unpacked"
        if [ "$(head -c 4 "$guests/unpacked" | tail -c 3)" = ELF ]; then
            cat "$guests/unpacked"; rm -f "$guests/unpacked"; return
        fi
    done
    cat "$1" # some other compression: boot it as it is
}

guests_can() {
    local tool
    [ "$(uname -m)" = x86_64 ] || { echo "guests are x86_64"; return 1; }
    [ -s "$SHOAL_BUILD/shoal-rdma.so" ] || { echo "the plugin was not built: no libibverbs-dev"; return 1; }
    for tool in qemu-system-x86_64 busybox cpio zstd xz depmod rdma setpriv; do
        PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || { echo "$tool is missing"; return 1; }
    done
    busybox --list | grep -qx insmod || { echo "busybox has no insmod"; return 1; }
    [ -s /etc/libibverbs.d/rxe.driver ] || { echo "the package ibverbs-providers is missing"; return 1; }
    (PATH=$PATH:/usr/sbin:/sbin; guests_kernel)
}

# add FOLDER FILE...: copies files into a folder of $disk, and the shared libraries of programs to where they belong
add() {
    local to=$disk$1 file lib; shift
    mkdir -p "$to"
    for file; do
        cp -L "$file" "$to/"
        ldd "$file" 2>/dev/null | grep -o '/[^ )]*' | while read -r lib; do
            [ -e "$disk$lib" ] || { mkdir -p "$disk${lib%/*}"; cp -L "$lib" "$disk$lib"; }
        done
    done
}

# Guests reach each other as root, with a key that is made for the image.
add_ssh() {
    mkdir -p "$disk/etc/ssh" "$disk/run/sshd"
    add /bin "$(command -v ssh)" "$(command -v ssh-keygen)"
    add /usr/sbin /usr/sbin/sshd
    ssh-keygen -q -t ed25519 -N '' -f "$disk/etc/ssh/key" && ssh-keygen -q -t ed25519 -N '' -f "$disk/etc/ssh/hostkey"
    printf '%s\n' "IdentityFile /etc/ssh/key" "StrictHostKeyChecking no" "UserKnownHostsFile /dev/null" "User root" \
        "LogLevel ERROR" >"$disk/etc/ssh/config"
    printf '%s\n' "HostKey /etc/ssh/hostkey" "AuthorizedKeysFile /etc/ssh/key.pub" "UsePAM no" "StrictModes no" \
        "SetEnv PATH=/bin:/tools:/usr/sbin" >"$disk/etc/ssh/sshd_config"
}

guests_image() (
    PATH=$PATH:/usr/sbin:/sbin
    verbs=/usr/lib/x86_64-linux-gnu/libibverbs
    disk=$(mktemp -d) && trap 'rm -rf "$disk"' EXIT
    version=$(ls "$guests/kernel/lib/modules")
    mkdir -p "$disk"/{bin,proc,sys,dev,tmp,etc,modules,test/models}
    cp "$(command -v busybox)" "$disk/bin/busybox"
    for module in $modules; do
        modprobe -d "$guests/kernel" -S "$version" --show-depends "$module" | awk '{print $2}'
    done | awk '!seen[$0]++' | while read -r module; do
        cp "$module" "$disk/modules/" && echo "${module##*/}" >>"$disk/modules/order"
    done
    for tool in $guest_tools; do tool=$(command -v "$tool") && add /tools "$tool"; done
    add /etc/libibverbs.d /etc/libibverbs.d/rxe.driver
    add "$verbs" "$verbs"/librxe-rdmav*.so
    add /lib/x86_64-linux-gnu /lib/x86_64-linux-gnu/libgcc_s.so.1 # loaded when a thread ends
    add /test "$SHOAL_BUILD/shoal" "$SHOAL_BUILD/shoal-rdma.so" "$guests_lib/guest.sh" "$@"
    cp -r "$root/models/demo" "$disk/test/models/"
    printf 'root:x:0:0:root:/:/bin/sh\nsshd:x:1:1:sshd:/:/bin/false\n' >"$disk/etc/passwd"
    [ ! -x /usr/sbin/sshd ] || add_ssh
    install -m 755 "$guests_lib/guest_init.sh" "$disk/init"
    (cd "$disk" && find . | cpio -o -H newc -R 0:0 --quiet | zstd -q -1 -T0) >"$guests/image"
)

# cable NAME RANK PEER: one end of the cable between two guests, a stream, which loses nothing; the lower one listens
cable() {
    local low=$2 high=$3 server=on
    if [ "$2" -gt "$3" ]; then low=$3 high=$2 server=off; fi
    if [ $server = off ]; then within 10 test -S "cable$low$high" || return 1; fi
    echo "stream,id=$1,server=$server,addr.type=unix,addr.path=cable$low$high"
}
guest_start() { # RANK COUNT PARTS
    local rank=$1 peer i=0 end
    local net=(-netdev "socket,id=net0,mcast=239.192.7.7:$guest_port,localaddr=127.0.0.1")
    for ((peer = 0; peer < $2; peer++)); do
        if [ $peer = "$rank" ]; then continue; fi
        i=$((i + 1)) && end=$(cable net$i "$rank" $peer) && net+=(-netdev "$end")
    done
    while [ $i -ge 0 ]; do
        net+=(-device "virtio-net-pci,netdev=net$i,mac=52:54:00:00:0$i:0$rank,host_mtu=9000,addr=0x$((4 + i)),romfile=")
        i=$((i - 1))
    done
    timeout -k 5 "${GUEST_LIMIT:-450}" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -m 384 -nographic \
        -no-reboot -nodefaults -serial stdio -kernel "$guests/vmlinux" -initrd "$guests/image" "${net[@]}" \
        -append "$kernel_flags rank=$rank ranks=$2 parts=$3" \
        </dev/null >"guest$rank.log" 2>&1 &
    pids+=($!)
}

guests_run() {
    local rank pids=() failed=0
    rm -f cable*
    guest_port=$((20000 + RANDOM % 10000)) # of a multicast group: nobody listens on it
    for ((rank = 0; rank < $1; rank++)); do guest_start $rank "$1" "$2"; done
    for rank in "${pids[@]}"; do wait "$rank" || failed=1; done
    for ((rank = 0; rank < $1; rank++)); do
        tr -d '\r' <"guest$rank.log" >guest.log && mv guest.log "guest$rank.log"
        grep -q '^guest: done' "guest$rank.log" || failed=1
    done
    return $failed
}

is_ok() { [ "$1" = ok ] || { cat "$2"; return 1; }; }
guests_report() {
    local rank result name
    for ((rank = 0; rank < $1; rank++)); do
        while read -r _ result name; do
            check "$name ($1 ranks, as seen by rank $rank)" is_ok "$result" guest$rank.log
        done < <(grep '^claim ' guest$rank.log)
        check "guest $rank of $1 ran to its end" grep -q '^guest: done' guest$rank.log
    done
}
