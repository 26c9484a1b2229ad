#!/usr/bin/env bash
# Installs the package that `make deb` left in DEBS on a bare Debian 12 (tools/bare.sh, in the folder BARE), serves the
# demo model there, asks it, and removes the package again.
#   packaging/deb_check.sh DEBS BARE
set -eu
cd "$(dirname "$0")/.."
deb=$(find "$1" -name 'shoal_*.deb' 2>/dev/null | head -n 1)
skip() { echo "deb-check: skipped: $1"; exit 0; }
[ -n "$deb" ] || skip "there is no package in $1"
[ "$(id -u)" = 0 ] || skip "needs root"
command -v debootstrap >/dev/null || [ -d "$2/base" ] || skip "needs the package debootstrap"

tools/bare.sh "$2" bash -euc '
    export DEBIAN_FRONTEND=noninteractive
    cd /tmp && cat >shoal.deb
    apt-get update -qq && apt-get install -y -qq --no-install-recommends ./shoal.deb >/dev/null
    shoal serve >log 2>&1 & server=$!
    for _ in $(seq 600); do ! grep -q "serving .demo." log || break; sleep 0.1; done
    ask="shoal generate --url http://127.0.0.1:8100 --max-tokens 4 --temperature 0"
    answer=$($ask --prompt "Once upon a time" 2>/dev/null)
    [ -n "$answer" ] || { cat log; exit 1; }
    kill -TERM $server; wait $server
    for file in /usr/share/man/man1/shoal-serve.1.gz /lib/systemd/system/shoal.service /etc/shoal/worker.env; do
        [ -e $file ] || { echo "$file is missing"; exit 1; }
    done
    [ "$(stat -c %a /etc/shoal/server.env)" = 600 ]
    dpkg --purge shoal >/dev/null
    left=$(find /usr /etc /lib/systemd /var/lib/shoal /var/cache/shoal -path "*shoal*" 2>/dev/null | head -n 5)
    [ -z "$left" ] || { echo "left after the removal: $left"; exit 1; }
    echo "deb-check: installed, served, answered (\"$answer\"), removed"' <"$deb"
