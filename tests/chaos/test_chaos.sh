#!/usr/bin/env bash
# The short form of `make chaos`.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
. "$root/tests/cluster/sshd.sh"
chaos() { "$root/tests/chaos/chaos.sh" "$@"; }
check "killed and stopped ranks of one machine: answers are exact or errors, and the group comes back" \
    chaos "$SHOAL_BUILD" 12 1
claim="the same between hosts whose links are cut"
if why=$(hosts_can && sshd_can); then check "$claim" chaos --hosts "$SHOAL_BUILD" 12 5; else skip "$claim" "$why"; fi
done_testing
