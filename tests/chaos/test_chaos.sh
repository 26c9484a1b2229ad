#!/usr/bin/env bash
# The short version of `make chaos`.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
. "$root/tests/cluster/sshd.sh"
chaos() { "$root/tests/chaos/chaos.sh" "$@"; }
check "ranks that share all layers are killed and stopped: every answer is exact, and the group re-forms" \
    chaos "$SHOAL_BUILD" 9 1
check "the same with two stages of two ranks" chaos "$SHOAL_BUILD" 7 2 --ranks 4 --parallel 2x2
claim="the same with links between hosts being cut"
if why=$(hosts_can && sshd_can); then check "$claim" chaos --hosts "$SHOAL_BUILD" 9 5; else skip "$claim" "$why"; fi
done_testing
