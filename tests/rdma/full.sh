#!/usr/bin/env bash
# The long form of test_rdma.sh: the tests of the collectives over real queue pairs, two and three ranks that serve, cut
# cables and killed ranks, and the speed next to that of the verbs themselves.
#   tests/rdma/full.sh build/release
export SHOAL_BUILD
SHOAL_BUILD=$(cd "$1" && pwd) || exit 1
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/guests.sh"
scratch
if ! why=$(guests_can); then skip "ranks over RDMA in QEMU" "$why"; done_testing; fi
guests_image "$SHOAL_BUILD/tests/unit/coll/test_coll" || exit 1
export GUEST_LIMIT=${GUEST_LIMIT:-500}
for ranks in 2 3; do
    guests_run $ranks suite,sums,answers,refusals,faults
    guests_report $ranks
done
guests_run 2 cable_sends
guests_report 2
if [ -x /usr/sbin/sshd ]; then
    guests_run 2 tools
    guests_report 2
else
    skip "launch, bench and status over RDMA" "needs openssh-server"
fi
guests_run 2 speed
# The ratios are reported without a threshold: both ends of both share the processors of this machine.
awk '/ib_send_lat/ {part = "lat"} /ib_send_bw/ {part = "bw"} /linktest/ {part = "link"}
    part == "lat" && $1 == 16384 {lat = $6}
    part == "bw" && $1 == 1048576 {bw = $4}
    part == "link" && $1 == 16384 {print "# all-reduce of 16 KiB: " $2 " us, ib_send_lat " lat " us, ratio " $2 / lat}
    part == "link" && $1 == 4194304 {print "# sum of 4 MiB: " $2 " GB/s, ib_send_bw " bw " MB/s, ratio " $2 * 1e3 / bw}
    ' guest0.log
done_testing
