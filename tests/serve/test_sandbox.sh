#!/usr/bin/env bash
# The API runs under landlock and seccomp, without core dumps, and everything still works.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'kill "${pid:-}" 2>/dev/null; wait "${pid:-}" 2>/dev/null; rm -rf "$work"' EXIT
port=$((20000 + RANDOM % 20000))
key1=$("$shoal" token) key2=$("$shoal" token)
mkdir etc logs model && cp "$root"/models/demo/* model/ && echo "$key1" >etc/keys
if ! command -v openssl >/dev/null || [ "$(id -u)" != 0 ] || [ ! -e "/proc/$$/task/$$/children" ]; then
    skip "the sandbox of the API" "needs openssl, root and Linux"; done_testing
fi
cert() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
        -addext "subjectAltName=IP:127.0.0.1" -keyout etc/key.new -out etc/cert.new 2>/dev/null
    mv etc/key.new etc/key.pem && mv etc/cert.new etc/cert.pem
}
ask() { curl -skf -m 5 -H "Authorization: Bearer $1" "https://127.0.0.1:$port$2" "${@:3}"; }
chat() { ask "$1" /v1/chat/completions -H "Content-Type: application/json" \
    -d '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":4}' | grep -q '"content"'; }
until_ok() {
    for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return; kill -0 "$pid" || break; sleep 0.1; done
    cat log; return 1
}
start() {
    "$shoal" serve --model model --ranks 2 --port $port --api-key-file etc/keys \
        --tls-cert etc/cert.pem --tls-key etc/key.pem --access-log logs/access \
        --request-log logs/requests "$@" >log 2>&1 & pid=$!
    until_ok ask "$key1" /v1/models
}
child() { # the process of a role; ranks by their number
    local c
    for c in $(cat "/proc/$pid/task/$pid/children"); do
        tr '\0' '\n' <"/proc/$c/environ" | grep -qx "$1" && echo "$c"
    done
}
status_of() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
serves() { chat "$key1"; }
is_confined() {
    grep -q "sandbox: " log || return 1
    local api; api=$(child SHOAL_PART=api)
    [ "$(status_of "$api" NoNewPrivs)" = 1 ] && [ "$(status_of "$api" Seccomp)" = 2 ]
}
says_landlock() { grep -q "sandbox: files (landlock" log && ! grep -q "all files readable" log; }
no_cores() {
    local c; for c in $(cat "/proc/$pid/task/$pid/children") "$pid"; do
        grep -qE "^Max core file size +0 +0 " "/proc/$c/limits" || return 1
    done
}
logs_are_private() { [ "$(stat -c %a logs/access logs/requests | sort -u)" = 600 ] && [ -s logs/access ]; }
serial() { openssl s_client -connect "127.0.0.1:$port" </dev/null 2>/dev/null | openssl x509 -noout -subject; }
is_reloaded() {
    cert second; echo "$key2" >etc/keys.new && mv etc/keys.new etc/keys; mv logs/access logs/access.1
    kill -HUP "$pid"
    until_ok ask "$key2" /v1/models && serial | grep -q second &&
        ! ask "$key1" /v1/models >/dev/null && [ -s logs/access ]
}
is_back_after_a_crash() { # the API reads the model again after the engine restarts
    kill -9 "$(child SHOAL_RANK=0)"
    sleep 0.5; until_ok chat "$key2"
}
is_back_itself() {
    kill -9 "$(child SHOAL_PART=api)"; sleep 0.3
    until_ok chat "$key2" && { ! grep -q seccomp log || is_confined; }
}
is_off() {
    local api; api=$(child SHOAL_PART=api)
    [ "$(status_of "$api" Seccomp)" = 0 ] && ! grep -qE "^Max core file size +0 " "/proc/$api/limits"
}

cert first; start
check "it serves" serves
if grep -q "sandbox: .*seccomp" log; then check "the API cannot gain privileges and has a filter" is_confined
else skip "the API has a filter" "$(grep -o 'sandbox: .*' log)"; fi
if [ -n "$(grep landlock log)" ]; then check "and sees only its own files" says_landlock
else skip "it sees only its own files" "no landlock here"; fi
check "neither API nor ranks leave core dumps" no_cores
check "logs are private" logs_are_private
check "SIGHUP reloads keys and certificates, and reopens logs" is_reloaded
check "it serves again after the engine has crashed" is_back_after_a_crash
check "an API that crashed is confined again" is_back_itself
kill "$pid"; wait "$pid"
echo "$key1" >etc/keys; ulimit -c unlimited 2>/dev/null; start --no-sandbox --core-dumps
if [ "$(ulimit -c)" = 0 ]; then skip "both can be switched off" "no core dumps here anyway"
else check "both can be switched off" is_off; fi
done_testing
