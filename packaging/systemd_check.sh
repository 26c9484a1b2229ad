#!/usr/bin/env bash
# Boots a bare Debian 12 that has systemd and the package of `make deb` (systemd-nspawn, the root of tools/bare.sh in
# the folder BARE), and tries both units there: start, answer, reload, a supervisor that hangs, a worker, stop.
#   packaging/systemd_check.sh DEBS BARE
set -eu
cd "$(dirname "$0")/.."
deb=$(find "$1" -name 'shoal_*.deb' 2>/dev/null | head -n 1)
skip() { echo "systemd-check: skipped: $1"; exit 0; }
[ -n "$deb" ] || skip "there is no package in $1"
[ "$(id -u)" = 0 ] || skip "needs root"
command -v systemd-nspawn >/dev/null || skip "needs the package systemd-container"
command -v debootstrap >/dev/null || [ -d "$2/base" ] || skip "needs the package debootstrap"

tools/bare.sh "$2" bash -euc '
    export DEBIAN_FRONTEND=noninteractive
    cd /tmp && cat >shoal.deb
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus ./shoal.deb >/dev/null' <"$deb"
root=$(cd "$2" && pwd)/root

cat >"$root/root/check.sh" <<'CHECK'
#!/bin/bash
# Inside: what fails is named in the file that the outer script prints.
exec >/root/check.log 2>&1
trap 'systemctl poweroff' EXIT
claim() {
    if "${@:2}"; then echo "ok - $1"; return; fi
    echo "not ok - $1"; systemctl status --no-pager -l shoal shoal-worker
}
shows() { systemctl show "$1" | grep -xF "$2" >/dev/null; }
soon() { local i; for i in $(seq 300); do if "$@"; then return 0; fi; sleep 0.1; done; return 1; }
main_pid() { systemctl show -p MainPID --value shoal; }
ask=(shoal generate --url http://127.0.0.1:8100 --max-tokens 4 --prompt "Once upon a time")
answers() { "${ask[@]}" 2>/dev/null | grep -q there; }
unprivileged() {
    ! grep -qP '^Uid:\t0' "/proc/$(main_pid)/status" && grep -qP '^CapEff:\t0+$' "/proc/$(main_pid)/status"
}
locked_in() { journalctl -u shoal | grep -q "sandbox: files (landlock.*system calls (seccomp)"; }
hang() { kill -STOP "$(main_pid)" && soon shows shoal NRestarts=1; }
settings() {
    printf 'SHOAL_%s\n' MODEL=/usr/share/shoal/models/demo RANKS=2 COORDINATOR=127.0.0.1:8200 "$2" >"/etc/shoal/$1"
}

mkdir -p /run/systemd/system/shoal.service.d
printf '[Service]\nWatchdogSec=4\nRestartSec=1\n' >/run/systemd/system/shoal.service.d/fast.conf
systemctl daemon-reload
claim "the server starts, and is ready when systemctl returns" systemctl start shoal
claim "its status says so" shows shoal StatusText=ready
claim "it answers" answers
claim "without privileges" unprivileged
claim "its API process is in its sandbox" locked_in
claim "it reloads" systemctl reload shoal
claim "and goes on" answers
claim "a supervisor that hangs is restarted by the watchdog" hang
claim "and answers again" soon answers
settings worker.env RANK=1
claim "a worker counts as started while it waits for rank 0" systemctl start shoal-worker
settings server.env RANK=0
claim "the server forms a group with it" systemctl restart shoal
claim "which answers" answers
claim "the worker's status says that it is ready" soon shows shoal-worker StatusText=ready
claim "the server stops" systemctl stop shoal
claim "the worker stops" systemctl stop shoal-worker
claim "both without an error" test "$(systemctl show -p Result --value shoal shoal-worker | sort -u | xargs)" = success
echo end
CHECK
chmod +x "$root/root/check.sh"
unit=$root/etc/systemd/system
printf '[Service]\nType=oneshot\nExecStart=/root/check.sh\nTimeoutStartSec=400\n' >"$unit/check.service"
mkdir -p "$unit/multi-user.target.wants" && ln -s ../check.service "$unit/multi-user.target.wants/"
# nspawn's own filter of system calls is older than landlock.
timeout -k 5 500 systemd-nspawn -q -D "$root" -b --register=no --keep-unit --private-network --machine=shoal-check \
    --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
    >"$root/../boot.log" 2>&1 </dev/null || { tail -n 20 "$root/../boot.log"; exit 1; }
cat "$root/root/check.log"
grep -qx end "$root/root/check.log" && ! grep -q '^not ok' "$root/root/check.log"
