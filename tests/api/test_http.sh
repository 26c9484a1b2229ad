#!/usr/bin/env bash
# HTTP itself, and all endpoints that work without an engine: there is none here.
. "$(dirname "$0")/lib.sh"

serve_api plain --receive-timeout 2 --idle-timeout 2 --body-bytes 1M --header-bytes 8K --access-log access.jsonl ||
    { echo "Bail out! the API did not start"; cat plain.log; exit 1; }
plain_pid=$api_pid

one="GET /health/live HTTP/1.1\r\nHost: a\r\n"
post="POST /tokenize HTTP/1.1\r\nHost: a\r\n"
first_line() { head -n 1 out | tr -d '\r'; }

one_connection() {
    is "$(curl -s -o /dev/null -o /dev/null -w '%{num_connects},' "$(url /health/live)" "$(url /health/live)")" 1,0,
}
check "two requests use one connection" one_connection
old_http() {
    raw 3 "GET /health/live HTTP/1.0\r\n\r\n" >out && has out "^Connection: close" &&
        raw 3 "GET /health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n${one}Connection: close\r\n\r\n" >out &&
        has out "^Connection: keep-alive" && is "$(grep -o '"alive"' out | wc -l)" 2
}
check "HTTP/1.0 connections are closed unless keep-alive is requested" old_http
pipelined() {
    local third="GET /nowhere HTTP/1.1\r\nHost: a\r\nX-Request-Id: third\r\nConnection: close\r\n\r\n"
    raw 5 "${one}X-Request-Id: first\r\n\r\n${one}X-Request-Id: second\r\n\r\n$third" >out &&
        is "$(grep -i ^X-Request-Id out | tr -d '\r' | cut -d' ' -f2 | paste -sd,)" first,second,third
}
check "pipelined requests are answered in order" pipelined
in_pieces() {
    raw 5 "GET /health/l" "ive HTTP/1.1\r" "\nHost: a\r\nConnect" "ion: close\r\n\r" "\n" >out
    has out alive
}
check "a request that arrives byte by byte is read" in_pieces
chunked() {
    printf '{}' >braces && gets 503 /tokenize -H "Transfer-Encoding: chunked" --data-binary @- <braces || return 1
    local chunks="2;x=y\r\n{}\r\n0\r\nTrailer: t\r\n\r\n"
    raw 3 "${post}Transfer-Encoding: chunked\r\n\r\n$chunks${one}Connection: close\r\n\r\n" >out && has out alive
}
check "chunked bodies are read" chunked
expected() {
    raw 3 "${post}Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n" "{}" >out &&
        is "$(first_line)" "HTTP/1.1 100 Continue" && has out "HTTP/1.1 503"
}
check "Expect: 100-continue is answered before the body" expected
refused_first() {
    raw 3 "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n" >out
    is "$(first_line)" "HTTP/1.1 404 Not Found"
}
check "a refused request is not asked to send its body" refused_first
head_only() {
    curl -sI "$(url /health/live)" >out && has out "Content-Length: 18" &&
        raw 3 "HEAD /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" >out && is "$(grep -c alive out)" 0
}
check "HEAD returns the headers of GET and no body" head_only
options() {
    gets 204 /v1/chat/completions -X OPTIONS && has head "^Allow: POST, OPTIONS" &&
        gets 204 / -X OPTIONS --request-target "*"
}
check "OPTIONS lists the methods" options
half_close() { printf '%b' "$one\r\n" | timeout 3 nc -N 127.0.0.1 "$port" >out; has out alive; }
check "a client that half-closes gets its response" half_close

envelope='^\{"error":\{"message":"[^"]+","type":"[a-z_]+","code":"[a-z_]+","param":null\},"detail":"[^"]+"\}$'
enveloped() { gets "$@" && has body "$envelope"; } # STATUS PATH [flags of curl]
check "unknown paths are 404 in the error envelope" enveloped 404 /nowhere
wrong_method() { enveloped 405 /v1/chat/completions && has head "^Allow: POST"; }
check "wrong methods are 405 with Allow" wrong_method
check "unknown methods are 501" enveloped 501 /health -X BREW
malformed() {
    local bad twice="Content-Length: 1\r\nContent-Length: 1"
    for bad in "NONSENSE\r\n\r\n" "GET / HTTP/1.1\r\n\r\n" "GET / HTTP/1.1\r\nHost: a\r\n$twice\r\n\r\n" \
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" \
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n"; do
        raw 3 "$bad" >out || { echo "not closed: $bad"; return 1; }
        has out "^HTTP/1.1 400" && tail -n 1 out >body && has body "$envelope" || return 1
    done
}
check "malformed requests are 400 and close the connection" malformed
http2() { raw 3 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" >out; has out "^HTTP/1.1 505"; }
check "HTTP/2 is refused with a proper response" http2
bad_chunk() { raw 3 "${post}Transfer-Encoding: chunked\r\n\r\nzz\r\n" >out; has out "^HTTP/1.1 400"; }
check "a bad chunk is 400" bad_chunk
rebound() {
    enveloped 403 /tokenize -H "Host: evil.example" -H "Origin: http://evil.example" -d "{}" &&
        gets 403 /requests/recent -H "Host: evil.example" -A "Mozilla/5.0 (X11)" &&
        gets 403 /health/live -H "Host: proxy.example" && gets 200 /health/live -H "Host: localhost"
}
check "a web page that rebinds its own name to this address is refused" rebound
large_body() {
    head -c 1100000 /dev/zero | tr '\0' a >big && enveloped 413 /tokenize --data-binary @big &&
        enveloped 413 /tokenize -H "Transfer-Encoding: chunked" --data-binary @big
}
check "large bodies are 413, announced or not" large_body
check "long heads are 431" enveloped 431 /health/live -H "X-Long: $(head -c 9000 /dev/zero | tr '\0' a)"
endless_head() {
    (printf 'GET / HTTP/1.1\r\nHost: a\r\n'; yes "X-A: b" | head -n 100000) | timeout 5 nc 127.0.0.1 "$port" >out
    has out "^HTTP/1.1 4"
}
check "an endless head is cut off" endless_head
too_slow() { raw 5 "GET /health/li" >out; has out "^HTTP/1.1 408" && tail -n 1 out >body && has body "$envelope"; }
check "a request that takes too long is 408" too_slow
trickle() {
    local start took trickler
    exec 9<>"/dev/tcp/127.0.0.1/$port"; start=$(now_ms)
    (for _ in $(seq 40); do printf a; sleep 0.2; done >&9 2>/dev/null) & trickler=$!
    timeout 10 cat <&9 >out; took=$(($(now_ms) - start)); kill $trickler 2>/dev/null; exec 9<&- 9>&-
    has out "^HTTP/1.1 408" && [ $took -lt 6000 ]
}
check "trickling bytes do not extend the time limit" trickle
idle() {
    local start took; start=$(now_ms)
    raw 10 "$one\r\n" >out; took=$(($(now_ms) - start)); has out alive && [ $took -gt 1500 ] && [ $took -lt 6000 ]
}
check "an idle connection is closed" idle

no_engine() {
    enveloped 503 /v1/chat/completions -d '{"messages":[]}' && has head "^Retry-After: [0-9]" &&
        gets 503 /health && has body '"ok":false' && gets 503 /health/ready && gets 503 /v1/models
}
check "503 with Retry-After while the engine is unavailable" no_engine
served() {
    local path
    for path in / /health/live /queue /memory /requests/recent /requests/stats /metrics/snapshot /metrics \
        /metrics/history /openapi.json /docs /docs/docs.js /docs/docs.css /settings /dashboard /dashboard/app.js \
        /dashboard/style.css; do
        gets 200 $path || { echo "$path"; return 1; }
    done
}
check "endpoints that need no engine are served" served
browser() { gets 302 / -H "Accept: text/html" && has head "^Location: /dashboard"; }
check "a browser is redirected to a page" browser
policy() {
    gets 200 /docs && has head "^Content-Security-Policy: default-src .none." &&
        has head "^X-Content-Type-Options: nosniff"
}
check "pages forbid all foreign content" policy
request_id() {
    gets 200 /queue -H "X-Request-Id: my-id_1.2" && has head "^X-Request-Id: my-id_1.2" &&
        gets 200 /queue -H "X-Request-Id: <b>" && has head "^X-Request-Id: req_[0-9a-f]{16}"
}
check "a valid request id of the client is returned, an invalid one is not" request_id
no_cors() { status_of -H "Origin: http://evil" "$(url /queue)" >/dev/null; ! grep -qi access-control head; }
check "no web page may use the API unless allowed" no_cors
bad_query() { gets 400 "/requests/recent?n=x" && has body '"param":"n"'; }
check "a bad number in a query is named" bad_query
snapshots() {
    timeout 3 curl -sN "$(url /metrics/stream)" >out
    [ "$(grep -c ^data: out)" -ge 2 ] && has out '"uptime_s"'
}
check "snapshots come as a stream" snapshots
prometheus() { curl -s "$(url /metrics)" | promtool check metrics; }
if command -v promtool >/dev/null; then
    check "promtool accepts the metrics" prometheus
else
    skip "promtool accepts the metrics" "promtool is missing (Debian package prometheus)"
fi
access_log() {
    has access.jsonl '"method":"GET","path":"/health/live","status":200' && has access.jsonl '"status":408' &&
        ! grep -qvE '^\{"time":[0-9.]+,"id":"[^"]+",.*\}$' access.jsonl
}
check "the access log is JSON with one line per request" access_log
start=$(now_ms); stop "$plain_pid"; rc=$? took=$(($(now_ms) - start))
ended() { is $rc 0 && [ $took -lt 2000 ]; }
check "SIGTERM stops it at once when nothing is running" ended
check "the log is free of assertions and sanitizer reports" no_complaint plain.log

serve_api few --connections 4
crowded() {
    for _ in 1 2 3 4 5 6; do exec {_}<>"/dev/tcp/127.0.0.1/$port"; done
    gets 200 /health/live -m 5
}
check "idle connections are closed in favor of new ones" crowded
stop "$api_pid"

printf '# keys\nsk-file-3dTy66Vb8n\n' >keys
SHOAL_API_KEY=sk-env1-4fZq81Lx0p,sk-env2-7hWm29Kc5r \
    serve_api keys --api-key-file keys --cors http://good.example,http://other.example
with_key() { gets "$1" "$2" -H "Authorization: Bearer $3"; } # STATUS PATH KEY
no_key() { gets 401 /v1/models && has head "^WWW-Authenticate: Bearer" && has body invalid_api_key; }
check "without a key it is 401" no_key
check "with a wrong key it is 401" with_key 401 /v1/models sk-wrong
any_key() {
    local key
    for key in sk-env1-4fZq81Lx0p sk-env2-7hWm29Kc5r sk-file-3dTy66Vb8n; do with_key 200 /queue $key || return 1; done
    gets 200 /queue -H "X-Api-Key: sk-file-3dTy66Vb8n"
}
check "any of the keys is accepted" any_key
own_tools() {
    export SHOAL_API_KEY=sk-env1-4fZq81Lx0p,sk-env2-7hWm29Kc5r API_PORT=$port
    prints waiting "$shoal" monitor --once && prints size "$shoal" call /queue
}
check "local commands find the port and present a key from the same settings" own_tools
keyless() { gets 200 /health/live && gets 200 /docs; }
check "health and pages need no key" keyless
new_keys() {
    printf 'sk-new-9gPk40Jw2e\n' >keys; kill -HUP "$api_pid"
    within 5 with_key 200 /queue sk-new-9gPk40Jw2e && with_key 401 /queue sk-file-3dTy66Vb8n
}
check "keys are reloaded on SIGHUP" new_keys
secret() {
    ! grep -E "sk-(env|file|new)" keys.log && SHOAL_API_KEY=sk-secret "$shoal" api --print-config >out &&
        ! grep -q sk-secret out
}
check "no key is shown anywhere" secret
cors() {
    gets 200 /health/live -H "Origin: http://good.example" &&
        has head "^Access-Control-Allow-Origin: http://good.example" && has head "^Vary: Origin" || return 1
    status_of -H "Origin: http://evil.example" "$(url /health/live)" >/dev/null; ! grep -qi allow-origin head &&
        gets 204 /v1/chat/completions -X OPTIONS -H "Origin: http://good.example" \
            -H "Access-Control-Request-Method: POST" \
            -H "Access-Control-Request-Headers: authorization, x-stainless-os" &&
        has head "^Access-Control-Allow-Headers: authorization, x-stainless-os" &&
        has head "^Access-Control-Allow-Methods: POST"
}
check "pages of allowed origins may use the API" cors
stop "$api_pid"

for n in 1 2; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=shoal-$n" \
        -addext 'subjectAltName=IP:127.0.0.1' -keyout key$n.pem -out cert$n.pem 2>/dev/null
done
cp cert1.pem cert.pem; cp key1.pem key.pem
serve_api tls --tls-cert cert.pem --tls-key key.pem --receive-timeout 1
secure() { curl -s --cacert "$1" "${@:3}" "https://127.0.0.1:$port$2"; } # CERTIFICATE PATH [flags of curl]
alive_by() { is "$(secure "$1" /health/live -o /dev/null -w '%{http_code}')" 200; }
https() {
    local live=https://127.0.0.1:$port/health/live
    is "$(curl -s --cacert cert1.pem -o /dev/null -o /dev/null -w '%{http_code}:%{num_connects},' "$live" "$live")" \
        200:1,200:0,
}
check "HTTPS works, with keep-alive too" https
check "TLS 1.1 is refused" not secure cert1.pem /health/live --tls-max 1.1
plain_http() { raw 3 "GET / HTTP/1.1\r\nHost: a\r\n\r\n" >out; ! grep -q 200 out && alive_by cert1.pem; }
check "plain HTTP on the TLS port is rejected" plain_http
silent() { local start; start=$(now_ms); raw 10 "" >out; [ $(($(now_ms) - start)) -lt 4000 ]; }
check "a handshake that never comes is cut off" silent
large_answer() { secure cert1.pem /openapi.json | tail -c 2 | grep -q "}}"; }
check "large responses arrive complete over TLS" large_answer
renewed() { cp cert2.pem cert.pem; cp key2.pem key.pem; kill -HUP "$api_pid"; within 5 alive_by cert2.pem; }
check "the certificate is reloaded on SIGHUP" renewed
broken() {
    echo broken >cert.pem; kill -HUP "$api_pid"
    within 5 has tls.log "keeping the old certificate" && alive_by cert2.pem
}
check "a certificate that does not load leaves the old one in use" broken
stop "$api_pid"
api() { "$shoal" api --socket s --port 0 "$@"; }
check "a missing certificate is an error that names it" refuses 1 none.pem api --tls-cert none.pem --tls-key key2.pem
check "a certificate without a key is refused" refuses 1 "go together" api --tls-cert cert2.pem
# while_serving NAME FLAGS... -- command: the command succeeds while such a server is running
while_serving() {
    local name=$1 flags=() rc; shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    serve_api "$name" "${flags[@]}" && "${@:2}"; rc=$?
    stop "$api_pid"; return $rc
}
taken() { refuses 1 "port $port" "$shoal" api --socket s --port "$port"; }
check "a port that is taken is an error that names it" while_serving first -- taken
check "listening to all without a key is warned about" \
    while_serving open --host 0.0.0.0 -- has open.log "anyone who can reach"
check "localhost means both of its addresses" while_serving local --host localhost -- gets 200 /health/live
six() { has six.log "http://\[::1\]:$port$" && prints alive "$shoal" call /health/live --host ::1 --port "$port"; }
if grep -qs "^0*1" /proc/net/if_inet6; then
    check "an IPv6 address works: listening, the printed URL, requests" while_serving six --host ::1 -- six
else
    skip "an IPv6 address works: listening, the printed URL, requests" "no IPv6 available"
fi
check "the logs are free of assertions and sanitizer reports" no_complaint ./*.log
done_testing
