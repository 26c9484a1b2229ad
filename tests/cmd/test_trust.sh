#!/usr/bin/env bash
# Files that happen to be around do not run code: a .env file that nobody asked for, a state folder of another user.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT

# A library and a command that leave a file when they are run.
printf '#!/bin/sh\ntouch %s/ran-ssh\nexit 1\n' "$work" >proxy && chmod 755 proxy
cat >evil.c <<END
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { open("$work/ran-lib", O_CREAT, 0600); }
END
"${CC:-cc}" -shared -fPIC -o evil.so evil.c 2>/dev/null
have_lib=$([ -e evil.so ] && echo yes)
echo '[{"ssh": "far.invalid"}]' >hosts.json

hostile() { # writes .env with $1 as its mode
    { echo "SHOAL_BACKEND=mpi"; echo "SHOAL_MPI_LIBRARY=$work/evil.so"
      echo "SSH_OPTIONS=-oProxyCommand=$work/proxy"; } >.env
    chmod "$1" .env; rm -f ran-ssh ran-lib
}
link() { timeout 20 "$shoal" linktest --ranks 1 --quick "$@" >out 2>err </dev/null; }
ssh_out() {
    timeout 20 "$shoal" launch --prepare --hostfile hosts.json --state-dir "$work/state" "$@" >out 2>err </dev/null
}

own_env_runs_nothing() {
    hostile 600; link; ssh_out --backend ring
    [ ! -e ran-lib ] && [ ! -e ran-ssh ] &&
        grep -q '\.env:3: SSH_OPTIONS is ignored.*--ssh-options' err
}
named_env_is_obeyed() {
    hostile 600; link --env-file .env
    [ -e ran-lib ] && ! grep -q "it can run code" err
}
open_env_is_not_read() {
    hostile 666; echo SHOAL_LOG_LEVEL=debug >>.env
    "$shoal" help --print-config >out 2>err
    grep -q "\.env is ignored: others may write" err && grep -q "log-level = info  # default" out
}
foreign_env_is_not_read() {
    hostile 644; chown 12345 .env; echo SHOAL_LOG_LEVEL=debug >>.env
    link; "$shoal" help --print-config >out 2>err
    [ ! -e ran-lib ] && grep -q "belongs to another user" err && grep -q "log-level = info  # default" out
}
foreign_link_is_not_read() {
    rm -f .env; echo SHOAL_LOG_LEVEL=debug >mine; ln -s mine .env; chown -h 12345 .env
    "$shoal" help --print-config >out 2>err; rm .env
    grep -q "belongs to another user" err && grep -q "log-level = info  # default" out
}
pipe_does_not_hang() {
    rm -f .env; mkfifo -m 600 .env
    timeout 5 "$shoal" help >out 2>err; local rc=$?; rm .env
    [ $rc = 0 ] && grep -q "not a regular file" err
}
state_of_a_download() { # its record would set LD_PRELOAD for the programs that restart runs
    mkdir -p kept && chmod 700 kept && rm -f ran-lib
    printf '{"process": "1 1 x", "folder": "%s", "line": ["help"], "environment": ["LD_PRELOAD=%s"]}' \
        "$work" "$work/evil.so" >kept/launch.json
    rm -f .env; (umask 077; echo "SHOAL_STATE=$work/kept" >.env)
    HOME=$work timeout 20 "$shoal" restart >out 2>err; rm .env
    [ ! -e ran-lib ] && grep -q "SHOAL_STATE is ignored" err
}
envs_of_a_named_hostfile() {
    echo '{"hosts": [{"ssh": "localhost"}], "envs": ["LD_PRELOAD=/x.so"]}' >envs.json
    rm -f .env; (umask 077; echo "HOSTFILE=envs.json" >.env)
    exits 1 timeout 20 "$shoal" launch --prepare --state-dir "$work/state" && grep -q "sets LD_PRELOAD" err
    local rc=$?; rm .env; return $rc
}
foreign_state_is_refused() {
    mkdir -p theirs && "$shoal" token >theirs/token && chmod 700 theirs && chown -R 12345 theirs
    for command in launch status stop restart logs "call /health"; do
        # shellcheck disable=SC2086
        exits 1 timeout 20 "$shoal" $command --state-dir "$work/theirs" || return 1
        grep -q "belongs to another user" err || return 1
    done
}
open_state_is_refused() {
    mkdir -p open && chmod 777 open
    exits 1 timeout 20 "$shoal" launch --prepare --state-dir "$work/open" && grep -q "others may write" err
}
log_is_private() {
    rm -f log; timeout 20 "$shoal" engine --log-file log >out 2>err
    [ "$(stat -c %a log)" = 600 ]
}

if [ -n "$have_lib" ]; then
    check "our own .env does not load a library or run a command" own_env_runs_nothing
    check "one given by --env-file does" named_env_is_obeyed
    check "nor does it set the state folder, whose record runs code" state_of_a_download
else skip "our own .env does not load a library" "no C compiler"; fi
check "a .env that others can write to is not read" open_env_is_not_read
check "a pipe in place of .env does not block" pipe_does_not_hang
check "a hostfile that only .env names cannot set LD_PRELOAD" envs_of_a_named_hostfile
check "a state folder that others can write to is refused" open_state_is_refused
check "a log file is accessible to its owner only" log_is_private
if [ "$(id -u)" = 0 ]; then
    check "a .env of another user is not read" foreign_env_is_not_read
    check "nor one reached through a link of another user" foreign_link_is_not_read
    check "a state folder of another user is refused by every command" foreign_state_is_refused
else skip "files of another user are not read" "only root can create them"; fi
done_testing
