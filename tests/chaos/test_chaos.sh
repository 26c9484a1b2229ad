#!/usr/bin/env bash
# The short version of `make chaos`.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
. "$root/tests/cluster/sshd.sh"
chaos() { "$root/tests/chaos/chaos.sh" "$@"; }
check "ranks that share all layers are killed and stopped: every answer is exact, and the group re-forms" \
    chaos "$SHOAL_BUILD" 4 1
check "the same with two stages of two ranks" chaos "$SHOAL_BUILD" 3 2 --ranks 4 --parallel 2x2
check "ranks of a pipeline stay away, leave and come back: every answer is exact" \
    chaos --elastic "$SHOAL_BUILD" 10 3 --parallel pipeline
claim="the same with links between hosts being cut"
if why=$(hosts_can && sshd_can); then
    check "$claim" chaos --hosts "$SHOAL_BUILD" 4 5 --parallel pipeline
else
    skip "$claim" "$why"
fi
done_testing
