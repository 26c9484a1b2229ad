#!/usr/bin/env bash
# Where the secrets of a launched cluster are: two hosts made of namespaces with a real sshd; the launcher runs on the
# first, the API (rank 0) on the second.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}"
work=$(mktemp -d) && cd "$work" || exit 1
if ! why=$(hosts_can && sshd_can); then
    skip "secrets of a launched cluster" "$why"
    cd / && rm -rf "$work"
    done_testing
fi
hosts_up 2
sshd_up
trap 'exit 143' TERM INT # and clean up
key=$("$shoal" token) port=8100
for i in 1 2; do mkdir "home$i" && host_home $i "$work/home$i" "$work"; done
mkdir bin # an ssh that records its arguments
printf '#!/bin/sh\nprintf "%%s\\n" "$*" >>%s/ssh.log\nexec %s "$@"\n' "$work" "$(command -v ssh)" >bin/ssh
chmod 755 bin/ssh
echo '[{"ssh": "h2", "ips": ["10.77.0.2"]}, {"ssh": "h1", "ips": ["10.77.0.1"]}]' >hosts.json
here='cd "$0" && HOME=/root PATH=$PWD/bin:$PATH exec "$@"'
on1() { on 1 env SSH_OPTIONS="$ssh_options" SHOAL_API_KEY="$key" sh -c "$here" "$work" "$@"; }
state2=home2/.local/state/shoal state1=home1/.local/state/shoal
body='{"messages": [{"role": "user", "content": "xyzzy-private"}], "max_tokens": 4}'

serves() { on1 timeout 100 "$shoal" launch --detach --hostfile hosts.json --port $port >out 2>err; }
key_is_with_the_api() {
    grep -q "$key" $state2/api.env && [ "$(stat -c %a $state2/api.env)" = 600 ] &&
        ! grep -rq "$key" $state2/settings.env $state1/settings.env && [ ! -e $state1/api.env ]
}
ranks_lack_it() { # on the host without the API
    local p n=0
    for p in $(ip netns pids "${hosts_tag}1"); do
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q '^SHOAL_RANK=1' || continue
        n=$((n + 1))
        tr '\0' '\n' <"/proc/$p/environ" | grep -q "$key" && { echo "process $p has the key"; return 1; }
    done
    [ $n -gt 0 ]
}
body_is_no_argument() {
    on1 timeout 60 "$shoal" call /v1/chat/completions "$body" >out 2>err && grep -q '"content"' out &&
        ! grep -q "xyzzy" ssh.log && grep -q "api.env" ssh.log
}
body_from_stdin() {
    echo "$body" | on1 timeout 60 "$shoal" call /v1/chat/completions - >out 2>err && grep -q '"content"' out
}
foreign_state_is_refused_there() {
    on1 "$shoal" stop >out 2>err; on 2 chown 12345 /root/.local/state/shoal
    on1 timeout 60 "$shoal" launch --prepare --hostfile hosts.json >out 2>err; local rc=$?
    on 2 chown 0 /root/.local/state/shoal
    [ $rc = 1 ] && grep -q "host h2.*belongs to another user" err
}
check "a cluster with an API key serves" serves
check "the key is on the host of the API, in a file that only its owner can read" key_is_with_the_api
check "the rank on the other host does not have it" ranks_lack_it
check "the body of a call is in no command line" body_is_no_argument
check "a body may come from standard input" body_from_stdin
check "a state folder owned by another user is refused on any host" foreign_state_is_refused_there
on1 "$shoal" stop >/dev/null 2>&1
cd / && rm -rf "$work"
done_testing
