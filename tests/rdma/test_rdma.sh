#!/usr/bin/env bash
# Ranks in two machines with RDMA devices, made by QEMU (guests.sh): sums and a model over both kinds of queue pairs,
# what is refused, and a cable that is cut while the group serves. `make rdma-check` has the long form.
# alone: two emulated machines need both processors
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/guests.sh"
case $SHOAL_BUILD in *san) skip "ranks over RDMA in QEMU" "the release build was tried in QEMU"; done_testing ;; esac
scratch
if ! why=$(guests_can); then skip "ranks over RDMA in QEMU" "$why"; done_testing; fi
if ! guests_image; then skip "ranks over RDMA in QEMU" "the image of the guests cannot be made"; done_testing; fi
guests_run 2 sums,answers,refusals,cable
guests_report 2
done_testing
