#!/usr/bin/env bash
# HTTP itself, and all endpoints that need no engine: there is none here.
. "$(dirname "$0")/lib.sh"

serve_api plain --receive-timeout 1 --idle-timeout 2 --body-bytes 1M --header-bytes 8K --access-log access.jsonl ||
    { echo "Bail out! the API did not start"; cat plain.log; exit 1; }
plain_pid=$api_pid

one="GET /health/live HTTP/1.1\r\nHost: a\r\n"
check "two requests go over one connection" \
    '[ "$(curl -s -o /dev/null -o /dev/null -w "%{num_connects}," "$(url /health/live)" "$(url /health/live)")" = 1,0, ]'
check "HTTP/1.0 closes unless it asks to stay" '
    raw 3 "GET /health/live HTTP/1.0\r\n\r\n" >out && has out "^Connection: close" &&
    raw 3 "GET /health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n${one}Connection: close\r\n\r\n" >out &&
    has out "^Connection: keep-alive" && is "$(grep -o \"alive\" out | wc -l)" 2'
check "pipelined requests are answered in order" '
    raw 5 "${one}X-Request-Id: first\r\n\r\n${one}X-Request-Id: second\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: a\r\nX-Request-Id: third\r\nConnection: close\r\n\r\n" >out &&
    is "$(grep -i ^X-Request-Id out | tr -d "\r" | cut -d" " -f2 | paste -sd,)" first,second,third'
check "a request that comes byte by byte is read" 'raw 5 "GET /health/l" "ive HTTP/1.1\r" "\nHost: a\r\nConnect" "ion: close\r\n\r" "\n" >out; has out "alive"'
check "chunked bodies are read" '
    is "$(printf "{}" | status_of -H "Transfer-Encoding: chunked" --data-binary @- "$(url /tokenize)")" 503 &&
    raw 3 "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nTrailer: t\r\n\r\n${one}Connection: close\r\n\r\n" >out && has out alive'
check "Expect: 100-continue is answered before the body" '
    raw 3 "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n" "{}" >out &&
    is "$(head -n 1 out | tr -d "\r")" "HTTP/1.1 100 Continue" && has out "HTTP/1.1 503"'
check "what is refused is not asked to send its body" '
    raw 3 "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n" >out; is "$(head -n 1 out | tr -d "\r")" "HTTP/1.1 404 Not Found"'
check "HEAD gives the head of GET and no body" '
    curl -sI "$(url /health/live)" >out && has out "Content-Length: 18" &&
    raw 3 "HEAD /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" >out && is "$(grep -c alive out)" 0'
check "OPTIONS tells the methods" 'is "$(status_of -X OPTIONS "$(url /v1/chat/completions)")" 204 && has head "^Allow: POST, OPTIONS" && is "$(status_of -X OPTIONS --request-target "*" "$(url /)")" 204'
check "a client that half-closes gets its answer" 'printf "${one}\r\n" | timeout 3 nc -N 127.0.0.1 $port >out; has out alive'

envelope='^\{"error":\{"message":"[^"]+","type":"[a-z_]+","code":"[a-z_]+","param":null\},"detail":"[^"]+"\}$'
check "unknown paths are 404 in the envelope" 'is "$(status_of "$(url /nowhere)")" 404 && has body "$envelope"'
check "wrong methods are 405 with Allow" 'is "$(status_of "$(url /v1/chat/completions)")" 405 && has head "^Allow: POST" && has body "$envelope"'
check "unknown methods are 501" 'is "$(status_of -X BREW "$(url /health)")" 501 && has body "$envelope"'
check "malformed requests are 400 and end the connection" '
    for bad in "NONSENSE\r\n\r\n" "GET / HTTP/1.1\r\n\r\n" "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n" \
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" "GET / HTTP/1.1\r\nHost : a\r\n\r\n"; do
        raw 3 "$bad" >out || { echo "not closed: $bad"; return 1; }
        has out "^HTTP/1.1 400" && tail -n 1 out >body && has body "$envelope" || return 1
    done'
check "HTTP/2 is told that it is not spoken" 'raw 3 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" >out; has out "^HTTP/1.1 505"'
check "a bad chunk is 400" 'raw 3 "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" >out; has out "^HTTP/1.1 400"'
check "a web page that leads its own name here is sent away" '
    is "$(status_of -H "Host: evil.example" -H "Origin: http://evil.example" -d "{}" "$(url /tokenize)")" 403 && has body "$envelope" &&
    is "$(status_of -H "Host: evil.example" -A "Mozilla/5.0 (X11)" "$(url /requests/recent)")" 403 &&
    is "$(status_of -H "Host: proxy.example" "$(url /health/live)")" 403 && is "$(status_of -H "Host: localhost" "$(url /health/live)")" 200'
check "large bodies are 413, announced or not" '
    head -c 1100000 /dev/zero | tr "\\0" a >big && is "$(status_of --data-binary @big "$(url /tokenize)")" 413 && has body "$envelope" &&
    is "$(status_of -H "Transfer-Encoding: chunked" --data-binary @big "$(url /tokenize)")" 413 && has body "$envelope"'
check "long heads are 431" 'is "$(status_of -H "X-Long: $(head -c 9000 /dev/zero | tr "\\0" a)" "$(url /health/live)")" 431 && has body "$envelope"'
check "an endless head is cut off" 'timeout 5 bash -c "(printf \"GET / HTTP/1.1\r\nHost: a\r\n\"; yes \"X-A: b\" | head -n 100000) | nc 127.0.0.1 $port" >out; has out "^HTTP/1.1 4"'
check "a request that takes too long is 408" 'raw 5 "GET /health/li" >out; has out "^HTTP/1.1 408" && tail -n 1 out >body && has body "$envelope"'
check "bytes that trickle do not stretch the time" '
    exec 9<>/dev/tcp/127.0.0.1/$port; start=$(date +%s%N)
    (for i in $(seq 40); do printf a; sleep 0.2; done >&9 2>/dev/null) & trickle=$!
    timeout 10 cat <&9 >out; took=$((($(date +%s%N) - start) / 1000000)); kill $trickle 2>/dev/null; exec 9<&- 9>&-
    has out "^HTTP/1.1 408" && [ $took -lt 4000 ]'
check "an idle connection is closed" 'start=$(date +%s%N); raw 10 "${one}\r\n" >out; took=$((($(date +%s%N) - start) / 1000000)); has out alive && [ $took -gt 1500 ] && [ $took -lt 6000 ]'

check "503 with Retry-After while the engine is away" '
    is "$(status_of -d "{\"messages\":[]}" "$(url /v1/chat/completions)")" 503 && has head "^Retry-After: [0-9]" && has body "$envelope" &&
    is "$(status_of "$(url /health)")" 503 && has body "\"ok\":false" && is "$(status_of "$(url /health/ready)")" 503 && is "$(status_of "$(url /v1/models)")" 503'
check "what needs no engine is served" '
    for path in / /health/live /queue /memory /requests/recent /requests/stats /metrics/snapshot /metrics /openapi.json /docs /docs/docs.js /docs/docs.css /settings /dashboard /dashboard/app.js /dashboard/style.css; do
        is "$(status_of "$(url $path)")" 200 || { echo "$path"; return 1; }
    done'
check "a browser is sent to a page" 'is "$(status_of -H "Accept: text/html" "$(url /)")" 302 && has head "^Location: /dashboard"'
check "pages forbid all that is not theirs" 'status_of "$(url /docs)" >/dev/null; has head "^Content-Security-Policy: default-src .none." && has head "^X-Content-Type-Options: nosniff"'
check "a client's request id comes back, a strange one does not" '
    status_of -H "X-Request-Id: my-id_1.2" "$(url /queue)" >/dev/null; has head "^X-Request-Id: my-id_1.2" &&
    status_of -H "X-Request-Id: <b>" "$(url /queue)" >/dev/null; has head "^X-Request-Id: req_[0-9a-f]{16}"'
check "no web page may use the API unless told" 'status_of -H "Origin: http://evil" "$(url /queue)" >/dev/null; ! grep -qi access-control head'
check "a bad number in a query is named" 'is "$(status_of "$(url "/requests/recent?n=x")")" 400 && has body "\"param\":\"n\""'
check "snapshots come as a stream" 'timeout 3 curl -sN "$(url /metrics/stream)" >out; [ "$(grep -c ^data: out)" -ge 2 ] && has out "\"uptime_s\""'
if command -v promtool >/dev/null; then
    check "promtool accepts the metrics" 'curl -s "$(url /metrics)" | promtool check metrics'
else
    skip "promtool accepts the metrics" "promtool is missing (Debian package prometheus)"
fi
check "the access log is JSON with one line a request" '
    has access.jsonl "\"method\":\"GET\",\"path\":\"/health/live\",\"status\":200" && has access.jsonl "\"status\":408" &&
    ! grep -qvE "^\{\"time\":[0-9.]+,\"id\":\"[^\"]+\",.*\}$" access.jsonl'
start=$(date +%s%N); stop "$plain_pid"; rc=$?
check "SIGTERM ends it at once when nothing runs" 'is $rc 0 && [ $((($(date +%s%N) - start) / 1000000)) -lt 2000 ]'
check "nothing went wrong unnoticed" '! grep -iE "assert|sanitizer|runtime error|leak" plain.log'

serve_api few --connections 4
check "idle connections give way to new ones" '
    for i in 3 4 5 6 7 8; do eval "exec $i<>/dev/tcp/127.0.0.1/$port"; done
    is "$(status_of -m 5 "$(url /health/live)")" 200; rc=$?
    for i in 3 4 5 6 7 8; do eval "exec $i<&- $i>&-"; done; return $rc'
stop "$api_pid"

printf '# keys\nsk-file-3dTy66Vb8n\n' >keys
SHOAL_API_KEY=sk-env1-4fZq81Lx0p,sk-env2-7hWm29Kc5r serve_api keys --api-key-file keys --cors http://good.example,http://other.example
check "without a key it is 401" 'is "$(status_of "$(url /v1/models)")" 401 && has head "^WWW-Authenticate: Bearer" && has body "invalid_api_key"'
check "with a wrong key it is 401" 'is "$(status_of -H "Authorization: Bearer sk-wrong" "$(url /v1/models)")" 401'
check "any of the keys opens" '
    for key in sk-env1-4fZq81Lx0p sk-env2-7hWm29Kc5r sk-file-3dTy66Vb8n; do is "$(status_of -H "Authorization: Bearer $key" "$(url /queue)")" 200 || return 1; done
    is "$(status_of -H "X-Api-Key: sk-file-3dTy66Vb8n" "$(url /queue)")" 200'
check "the tools of this machine find the port and show a key by the same settings" '
    export SHOAL_API_KEY=sk-env1-4fZq81Lx0p,sk-env2-7hWm29Kc5r API_PORT=$port
    "$shoal" monitor --once | grep -q waiting && "$shoal" call /queue | grep -q size; rc=$?
    unset SHOAL_API_KEY API_PORT; return $rc'
check "health and pages need no key" 'is "$(status_of "$(url /health/live)")" 200 && is "$(status_of "$(url /docs)")" 200'
check "keys are read again on SIGHUP" '
    printf "sk-new-9gPk40Jw2e\n" >keys; kill -HUP $api_pid; sleep 0.5
    is "$(status_of -H "Authorization: Bearer sk-new-9gPk40Jw2e" "$(url /queue)")" 200 && is "$(status_of -H "Authorization: Bearer sk-file-3dTy66Vb8n" "$(url /queue)")" 401'
check "no key is shown anywhere" '! grep -E "sk-(env|file|new)" keys.log && SHOAL_API_KEY=sk-secret "$shoal" api --print-config >out && ! grep -q sk-secret out'
check "pages of named origins may use the API" '
    status_of -H "Origin: http://good.example" "$(url /health/live)" >/dev/null; has head "^Access-Control-Allow-Origin: http://good.example" && has head "^Vary: Origin" &&
    status_of -H "Origin: http://evil.example" "$(url /health/live)" >/dev/null; ! grep -qi allow-origin head &&
    is "$(status_of -X OPTIONS -H "Origin: http://good.example" -H "Access-Control-Request-Method: POST" -H "Access-Control-Request-Headers: authorization, x-stainless-os" "$(url /v1/chat/completions)")" 204 &&
    has head "^Access-Control-Allow-Headers: authorization, x-stainless-os" && has head "^Access-Control-Allow-Methods: POST"'
stop "$api_pid"

for n in 1 2; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=shoal-$n" \
        -addext 'subjectAltName=IP:127.0.0.1' -keyout key$n.pem -out cert$n.pem 2>/dev/null
done
cp cert1.pem cert.pem; cp key1.pem key.pem
serve_api tls --tls-cert cert.pem --tls-key key.pem --receive-timeout 1
check "HTTPS works, keep-alive too" '[ "$(curl -s --cacert cert1.pem -o /dev/null -o /dev/null -w "%{http_code}:%{num_connects}," "https://127.0.0.1:$port/health/live" "https://127.0.0.1:$port/health/live")" = 200:1,200:0, ]'
check "TLS 1.1 is refused" '! curl -s --cacert cert1.pem --tls-max 1.1 "https://127.0.0.1:$port/health/live"'
check "plain HTTP on the TLS port is turned away" 'raw 3 "GET / HTTP/1.1\r\nHost: a\r\n\r\n" >out; ! grep -q 200 out; is "$(curl -s --cacert cert1.pem -o /dev/null -w "%{http_code}" "https://127.0.0.1:$port/health/live")" 200'
check "a handshake that never comes is cut off" 'start=$(date +%s%N); raw 10 "" >out; [ $((($(date +%s%N) - start) / 1000000)) -lt 4000 ]'
check "large answers come whole over TLS" 'curl -s --cacert cert1.pem "https://127.0.0.1:$port/openapi.json" | tail -c 2 | grep -q "}}"'
check "the certificate is read again on SIGHUP" '
    cp cert2.pem cert.pem; cp key2.pem key.pem; kill -HUP $api_pid; sleep 0.5
    is "$(curl -s --cacert cert2.pem -o /dev/null -w "%{http_code}" "https://127.0.0.1:$port/health/live")" 200'
check "a certificate that does not load leaves the old one" '
    echo broken >cert.pem; kill -HUP $api_pid; sleep 0.5
    is "$(curl -s --cacert cert2.pem -o /dev/null -w "%{http_code}" "https://127.0.0.1:$port/health/live")" 200 && has tls.log "old certificate stays"'
stop "$api_pid"
check "a missing certificate is an error that names it" 'exits 1 "$shoal" api --socket s --port 0 --tls-cert none.pem --tls-key key2.pem && has err "none.pem"'
check "a certificate without key is refused" 'exits 1 "$shoal" api --socket s --port 0 --tls-cert cert2.pem && has err "go together"'
check "a port that is taken is an error that names it" 'serve_api first && exits 1 "$shoal" api --socket s --port $port && has err "port $port"; rc=$?; stop $api_pid; return $rc'
check "listening to all without a key is warned about" 'serve_api open --host 0.0.0.0 && has open.log "anybody who can reach"; rc=$?; stop $api_pid; return $rc'
check "localhost means both of its addresses" 'serve_api local --host localhost && is "$(status_of "http://127.0.0.1:$port/health/live")" 200; rc=$?; stop $api_pid; return $rc'
if grep -qs ^0*1 /proc/net/if_inet6; then
    check "an IPv6 address is listened on, told as a URL, and asked" '
        serve_api six --host ::1 && has six.log "http://\[::1\]:$port$" && "$shoal" call /health/live --host ::1 --port $port | grep -q alive; rc=$?; stop $api_pid; return $rc'
else
    skip "an IPv6 address is listened on, told as a URL, and asked" "there is no IPv6 here"
fi
check "no part of it complained" '! grep -iE "assert|sanitizer|runtime error|leak" ./*.log'
done_testing
