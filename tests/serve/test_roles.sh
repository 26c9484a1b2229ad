#!/usr/bin/env bash
# Each process of a server has the secrets that it needs and no others; nobody else can use the socket between them.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'kill "${pid:-}" 2>/dev/null; wait "${pid:-}" 2>/dev/null; rm -rf "$work"' EXIT
key=k3y-9f2c71d0a8b64e55 token=$("$shoal" token)
port=$((20000 + RANDOM % 20000))

answers() { curl -sf -m 2 -H "Authorization: Bearer $key" "http://127.0.0.1:$port/v1/models" >/dev/null; }
start() { # environment and flags are set by the caller
    pid=; "$@" >log 2>&1 & pid=$!
    for _ in $(seq 200); do answers && return 0; kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    cat log; return 1
}
stop() { kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; }
children() { cat "/proc/$pid/task/$pid/children"; }
part_of() { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^SHOAL_PART=//p'; }
knows() { tr '\0' '\n' <"/proc/$1/environ" | grep -q "$2" || tr '\0' '\n' <"/proc/$1/cmdline" | grep -q "$2"; }

each_knows_its_own() {
    local seen=0 child
    answers || { cat log; return 1; }
    for child in $(children); do
        seen=$((seen + 1))
        case $(part_of "$child") in
        engine) knows "$child" "$key" && { echo "a rank has the API key"; return 1; } ;;
        api)
            knows "$child" "$token" && { echo "the API has the token"; return 1; }
            [ "$(curl -s -o /dev/null -w "%{http_code}" "http://127.0.0.1:$port/v1/models")" = 401 ] ||
                { echo "the API lacks its key"; return 1; } ;;
        esac
    done
    [ $seen = 3 ]
}
socket_is_hidden() {
    local sock; sock=$(echo shoal-*/engine.sock)
    [ -S "$sock" ] && [ "$(stat -c %a "${sock%/*}")" = 700 ] && [ "$(stat -c %a "$sock")" = 600 ]
}
socket_is_refused_to_others() { # even though its mode would allow them
    chmod 755 "$work" shoal-*; chmod 666 shoal-*/engine.sock
    timeout 5 setpriv --reuid 12345 --clear-groups "$shoal" api --port 0 \
        --socket "$(echo "$work"/shoal-*/engine.sock)" >out 2>err
    grep -q "refused a client of another user" log && answers
}
folder_is_removed() { [ -s log ] && ! ls -d shoal-* >/dev/null 2>&1; }
# Takes the socket names that version 0.1 would have used for the next processes.
squat() {
    mkdir -p runtime && chmod 1777 runtime && python3 - "$work/runtime" <<'PY'
import os, socket, sys, time
socks = []
for n in range(os.getpid(), os.getpid() + 500):
    s = socket.socket(socket.AF_UNIX); s.bind("%s/shoal-%d.sock" % (sys.argv[1], n)); s.listen(); socks.append(s)
open(sys.argv[1] + "/all", "w").close()
time.sleep(60)
PY
}

if [ "$(id -u)" != 0 ] || [ ! -e "/proc/$$/task/$$/children" ]; then
    skip "each process has only its own secrets" "needs root, on Linux"; done_testing
fi
SHOAL_API_KEY=$key SHOAL_TOKEN=$token start "$shoal" serve --port $port --runtime-dir "$work"
check "ranks do not get the API key, and the API does not get the token, from the environment" each_knows_its_own
check "the socket is in a private folder" socket_is_hidden
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && setpriv --reuid 12345 --clear-groups test -x "$shoal"; then
    check "a client of another user is refused" socket_is_refused_to_others
else skip "a client of another user is refused" "needs root, setpriv and a program that others may run"; fi
stop
check "the folder of the socket is removed at exit" folder_is_removed
start "$shoal" serve --port $port --runtime-dir "$work" --api-key $key --token="$token"
check "the same with flags" each_knows_its_own
stop
if command -v python3 >/dev/null; then
    squat & squatter=$!
    for _ in $(seq 100); do [ -e runtime/all ] && break; sleep 0.1; done
    SHOAL_API_KEY=$key start "$shoal" serve --port $port --runtime-dir "$work/runtime" >/dev/null
    check "taking the name of its socket does not stop a server" answers
    stop; pkill -P $squatter; kill $squatter 2>/dev/null
else skip "taking the name of its socket does not stop a server" "no python3"; fi
done_testing
