#!/usr/bin/env bash
# The command line: help, exit codes, sources of settings, completion, the reference page.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
scratch

check "version is printed" prints '^shoal [0-9]+\.[0-9]+\.[0-9]+$' "$shoal" --version
helps() { prints "^  completion" "$shoal" help && prints Usage "$shoal" --help && exits 0 "$shoal" help; }
check "help lists every command and exits 0" helps
check "help of a command shows its flags" prints --markdown "$shoal" help help
check "--help equals help COMMAND" gives "$("$shoal" help completion)" "$shoal" completion --help
check "an unknown command exits 2 and is named" refuses 2 "no command .frobnicate." "$shoal" frobnicate
check "an unknown flag exits 2 and suggests the nearest" refuses 2 "did you mean --log-level" "$shoal" help --log-levl x
check "a refused value exits 2 and lists the allowed ones" refuses 2 "one of error\|warn" "$shoal" help --log-level loud
check "an argument too many is named, and exits 2" refuses 2 "unexpected argument .b." "$shoal" help a b
to_full() { "$@" >/dev/full; }
check "output that cannot be written is an error" exits 1 to_full "$shoal" help
check "an answer whose reader has gone stops" refuses 1 interrupted \
    to_full "$shoal" generate --model "$root/models/demo" --chat "Tell me a story about a fox and a lantern."

held() { readlink "/proc/$1/fd/0" "/proc/$1/fd/1" "/proc/$1/fd/2" | uniq -c | tr -s ' '; }
closed() { # the standard files of a process whose caller has closed them; loading libraries would reuse their numbers
    "$shoal" serve --ranks 1 --port 0 <&- >&- 2>&- & local pid=$! rc
    within 5 gives " 3 /dev/null" held $pid && sleep .3 && gives " 3 /dev/null" held $pid; rc=$?
    kill $pid; wait $pid 2>/dev/null
    return $rc
}
if [ -d /proc/self/fd ]; then
    check "nothing else gets the descriptors of closed standard files" closed
else skip "nothing else gets the descriptors of closed standard files" "there is no /proc/self/fd"; fi

# sourced VALUE FROM [NAME=VALUE...] [flags...]: the log level is VALUE, and comes from FROM
sourced() {
    local line="log-level = $1  # $2"; shift 2
    prints "^$line" env "$@"
}
echo 'SHOAL_LOG_LEVEL=debug' >.env
check ".env is read" sourced debug ".env:1 SHOAL_LOG_LEVEL" "$shoal" help --print-config
check "the environment takes precedence over .env" \
    sourced warn "environment LOG_LEVEL" LOG_LEVEL=warn "$shoal" help --print-config
check "a flag takes precedence over the environment" \
    sourced error flag LOG_LEVEL=warn "$shoal" help --log-level error --print-config
echo 'log-level = error' >conf; rm .env
check "a settings file is read" sourced error conf:1 "$shoal" help --config conf --print-config
in_json() {
    echo '{"port": 81, "token": "secret", "LOG_LEVEL": "warn", "api": {"host": "::1"}}' >json
    "$shoal" serve --config json --print-config >out
    local line
    for line in "port = 81" "token = (hidden)" "log-level = warn" "host = ::1"; do
        grep -qxF "$line  # json" out || { echo "$line"; return 1; }
    done
}
check "a settings file in JSON: by flags, by variables and by sections" in_json
echo "x = 1" >conf
check "a bad line of it is named" refuses 2 "conf:1: .x. is not a setting" "$shoal" help --config conf
check "a missing file that was named is an error" refuses 2 nowhere "$shoal" help --env-file nowhere
check "aliases that disagree are refused" \
    refuses 2 "different values" env LOG_LEVEL=warn SHOAL_LOG_LEVEL=info "$shoal" help
check "a variable without meaning here gives a notice" refuses 0 "MLX_METAL_FAST_SYNCH is not used" \
    env MLX_METAL_FAST_SYNCH=1 "$shoal" help

completes() {
    "$shoal" completion bash >c &&
        bash -c '. ./c; COMP_WORDS=(shoal help --mark); COMP_CWORD=2; _shoal; [ "${COMPREPLY[0]}" = --markdown ]'
}
check "bash completion knows commands and flags" completes
reference() { "$shoal" help --markdown | cmp - "$root/docs/options.md"; }
check "docs/options.md matches the option tables" reference
done_testing
