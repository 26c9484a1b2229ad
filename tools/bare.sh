#!/usr/bin/env bash
# Runs a command (default: ./test.sh) on a fresh clone of this repository in a bare Debian 12 that has only the base
# system: no compiler, no make, no git, no node.
#   tools/bare.sh [--no-npm] [--keep] FOLDER [COMMAND ARGS...]
# FOLDER, outside the repository, gets `base`, made once by debootstrap, and `root`, a copy of it for this run. --keep
# reuses the `root` of the last run. --no-npm points npm at an unreachable registry. Needs root and the package
# debootstrap; apt sources, proxies and certificates are those of this machine.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
npm=true keep=false
while [[ ${1:-} == --* ]]; do
    case $1 in
    --no-npm) npm=false ;;
    --keep) keep=true ;;
    *) echo "bare: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"; folder=$(cd "$1" && pwd); shift
[ $# -gt 0 ] || set -- ./test.sh
[ "$(id -u)" = 0 ] || { echo "bare: needs root" >&2; exit 1; }
case $folder/ in "$repository"/*) echo "bare: $folder is inside the repository" >&2; exit 1 ;; esac
suite=bookworm base=$folder/base root=$folder/root

make_base() {
    local mirror
    command -v debootstrap >/dev/null || { echo "bare: needs the package debootstrap" >&2; exit 1; }
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" |
        sort -u | head -n 1)
    rm -rf "$base.part"
    # shellcheck disable=SC2086 # an empty mirror must vanish: debootstrap then uses its default
    debootstrap --variant=minbase $suite "$base.part" $mirror >"$folder/debootstrap.log" ||
        { tail -n 5 "$folder/debootstrap.log" >&2; exit 1; }
    mv "$base.part" "$base"
}

# Copies what this machine uses to reach the mirrors: sources, proxies, name resolution and trusted certificates. The
# certificates go to a separate file that no package of the root writes.
certificates=/etc/ssl/certificates-of-the-host.crt
copy_settings() {
    local file
    cp -L /etc/resolv.conf "$root/etc/"
    for file in sources.list sources.list.d auth.conf.d; do
        rm -rf "$root/etc/apt/$file"
        [ ! -e "/etc/apt/$file" ] || cp -a "/etc/apt/$file" "$root/etc/apt/"
    done
    apt-config dump | grep -E '^Acquire::https?::' >"$root/etc/apt/apt.conf.d/99host" || true
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        mkdir -p "$root/etc/ssl" && cp -L /etc/ssl/certs/ca-certificates.crt "$root$certificates"
        echo "Acquire::https::CaInfo \"$certificates\";" >>"$root/etc/apt/apt.conf.d/99host"
    fi
    printf '127.0.0.1 localhost\n127.0.1.1 bare\n::1 localhost ip6-localhost\n' >"$root/etc/hosts"
    echo bare >"$root/etc/hostname"
}

[ -d "$base" ] || make_base
if ! $keep || [ ! -d "$root" ]; then
    rm -rf "$root" && cp -a "$base" "$root"
    copy_settings
fi
rm -rf "$root/root/shoal"
git clone -q "$repository" "$root/root/shoal"

environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM="${TERM:-dumb}")
[ ! -e "$root$certificates" ] || environment+=("npm_config_cafile=$certificates" "NODE_EXTRA_CA_CERTS=$certificates")
mapfile -t -O ${#environment[@]} environment < <(env | grep -E '^([a-z]+_proxy|[A-Z]+_PROXY|npm_config_registry)=')
$npm || environment+=(npm_config_registry=http://192.0.2.1/) # reserved for documentation: nothing answers there

# Separate process, mount and host name namespaces. The folder is bind-mounted on itself because pivot_root requires a
# mount point.
exec unshare --mount --uts --pid --fork --kill-child --propagation private bash -c '
    root=$1; shift
    hostname bare
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount -t sysfs sys "$root/sys" &&
        mount --rbind /dev "$root/dev" && mount -t tmpfs shm "$root/dev/shm" && mount -t tmpfs run "$root/run" || exit 1
    cd "$root" && mkdir -p old && pivot_root . old && cd / && umount -l /old || exit 1
    cd /root/shoal && exec env -i "$@"' bare "$root" "${environment[@]}" "$@"
