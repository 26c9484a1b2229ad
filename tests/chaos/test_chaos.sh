#!/usr/bin/env bash
# The short version of `make chaos`.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
. "$root/tests/cluster/sshd.sh"
chaos() { "$root/tests/chaos/chaos.sh" "$@"; }
check "ranks of one machine are killed and stopped: answers are exact or errors, and the group re-forms" \
    chaos "$SHOAL_BUILD" 12 1
claim="the same with links between hosts being cut"
if why=$(hosts_can && sshd_can); then check "$claim" chaos --hosts "$SHOAL_BUILD" 12 5; else skip "$claim" "$why"; fi
done_testing
