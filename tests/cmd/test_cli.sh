#!/usr/bin/env bash
# The program as a shell sees it: help, exit codes, sources of settings, completion, the reference page.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
cd "$(mktemp -d)" || exit 1

check "version is printed" '"$shoal" --version | grep -qE "^shoal [0-9]+\.[0-9]+\.[0-9]+$"'
check "help lists every command and exits 0" '"$shoal" help | grep -q "^  completion" && "$shoal" --help | grep -q Usage'
check "help of a command shows its flags" '"$shoal" help help | grep -q -- "--markdown"'
check "--help equals help COMMAND" '[ "$("$shoal" completion --help)" = "$("$shoal" help completion)" ]'
check "an unknown command exits 2 and names itself" 'exits 2 "$shoal" frobnicate && grep -q "no command .frobnicate." err'
check "an unknown flag exits 2 and offers the near one" 'exits 2 "$shoal" help --log-levl x && grep -q "did you mean --log-level" err'
check "a refused value exits 2 with what is allowed" 'exits 2 "$shoal" help --log-level loud && grep -q "one of error|warn" err'
check "an argument too many exits 2" 'exits 2 "$shoal" help a b && grep -q "one argument too many" err'
check "output that can not be written is an error" 'exits 1 sh -c "\"$shoal\" help >/dev/full"'
check "an answer that nobody reads ends there" '
    exits 1 sh -c "\"$shoal\" generate --model \"$root/models/demo\" --chat \"Tell me a story about a fox and a lantern.\" >/dev/full" && grep -q "interrupted" err'

closed() { # the standard files of a process whose caller has closed them
    "$shoal" serve --ranks 1 --port 0 <&- >&- 2>&- &
    for _ in $(seq 100); do [ "$(ls /proc/$!/fd 2>/dev/null | wc -l)" -gt 4 ] && break; sleep 0.05; done
    readlink /proc/$!/fd/0 /proc/$!/fd/1 /proc/$!/fd/2 | sort -u
    kill $!; wait $! 2>/dev/null
}
[ -d /proc/self/fd ] && check "nothing else gets the numbers of closed standard files" '[ "$(closed)" = /dev/null ]'

echo 'SHOAL_LOG_LEVEL=debug' >.env
check ".env is read" '"$shoal" help --print-config | grep -q "log-level = debug  # .env:1 SHOAL_LOG_LEVEL"'
check "the environment goes before .env" 'LOG_LEVEL=warn "$shoal" help --print-config | grep -q "log-level = warn  # environment LOG_LEVEL"'
check "a flag goes before the environment" 'LOG_LEVEL=warn "$shoal" help --log-level error --print-config | grep -q "error  # flag"'
echo 'log-level = error' >conf; rm .env
check "a settings file is read" '"$shoal" help --config conf --print-config | grep -q "error  # conf:1"'
check "one in JSON, by flags, by variables and by sections" '
    echo "{\"port\": 81, \"token\": \"secret\", \"LOG_LEVEL\": \"warn\", \"api\": {\"host\": \"::1\"}}" >json
    "$shoal" serve --config json --print-config >out; for line in "port = 81  # file" "token = (hidden)  # file" "log-level = warn  # file" "host = ::1  # file"; do grep -qxF "$line" out || exit 1; done'
check "a bad line of it is named" 'echo "x = 1" >conf; exits 2 "$shoal" help --config conf && grep -q "conf:1: .x. is no setting" err'
check "a missing file that was named is an error" 'exits 2 "$shoal" help --env-file nowhere && grep -q nowhere err'
check "aliases that disagree are refused" 'LOG_LEVEL=warn SHOAL_LOG_LEVEL=info exits 2 "$shoal" help && grep -q disagree err'
check "a variable without meaning here gives a notice" 'MLX_METAL_FAST_SYNCH=1 "$shoal" help 2>&1 >/dev/null | grep -q "MLX_METAL_FAST_SYNCH is not used"'

check "bash completion knows commands and flags" \
    '"$shoal" completion bash >c && bash -c ". ./c; COMP_WORDS=(shoal help --mark); COMP_CWORD=2; _shoal; [ \"\${COMPREPLY[0]}\" = --markdown ]"'
check "docs/options.md is what the tables say" '"$shoal" help --markdown | cmp - "$root/docs/options.md"'
done_testing
