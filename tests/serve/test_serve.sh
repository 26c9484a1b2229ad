#!/usr/bin/env bash
# `shoal serve` as users see it: the demo model on two ranks, processes that are killed, and a clean exit.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d /tmp/shoal-serve-XXXXXX)
cd "$work" || exit 1
trap 'kill -9 $serve_pid 2>/dev/null; rm -rf "$work"' EXIT

port=$(free_port) # stays the same when the API restarts
serve() {
    : >serve.log
    (cd "$root" && exec "$shoal" serve --port $port --runtime-dir "$work" --threads 1) >serve.log 2>&1 &
    serve_pid=$!
    for _ in $(seq 600); do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/health/ready")" = 200 ] && return 0
        kill -0 $serve_pid 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
ask() { # TEXT: the answer's text
    curl -s -m 60 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
        -d "{\"messages\":[{\"role\":\"user\",\"content\":\"$1\"}],\"temperature\":0,\"max_tokens\":60}" >answer
    sed -nE 's/.*"content":"([^"]*)".*/\1/p' answer
}
good() { ask "What is tensor parallelism?" | grep -q "^Tensor parallelism splits every layer across the machines"; }
again() { for _ in $(seq 100); do good && return 0; sleep 0.2; done; return 1; }
pids_of() { # PART: process ids of the children with that in their environment
    local pid
    for pid in $(pgrep -P $serve_pid); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "$1" && echo "$pid"
    done
}

serve; started=$?
serves() { [ $started = 0 ] && grep -q "on 2 ranks" serve.log; }
check "serves the demo model on two ranks" serves
check "answers what the model was taught" good
complete() { curl -s -N -m 60 "http://127.0.0.1:$port/v1/completions" -H "Content-Type: application/json" -d "$1"; }
streams() {
    complete '{"prompt":"1 2 3","max_tokens":5,"stream":true}' >stream && tail -n 2 stream | grep -q "data: \[DONE\]"
}
check "streams, and ends the stream" streams

kill -HUP $serve_pid
reloads() { within 5 grep -q "reload finished" serve.log && good && ! grep -q "by signal" serve.log; }
check "SIGHUP is the API's alone: the ranks stay" reloads
kill -9 "$(pids_of SHOAL_RANK=1)"
rank_back() { again && grep -q "rank 1 .*was lost" serve.log && grep -q "group has re-formed" serve.log; }
check "a killed rank is named and restarted, and serving continues" rank_back
kill -9 "$(pids_of SHOAL_PART=api)"
api_back() { again && [ "$(grep -c "\] ready: " serve.log)" = 1 ]; }
check "a killed API is restarted without loading the model again" api_back
kill -STOP "$(pids_of SHOAL_RANK=0)"
frozen() { good && grep -q "rank 0 has shown no sign of life for" serve.log; }
check "a frozen rank 0 is ended and started again, and the request is answered" frozen
kill -9 "$(pids_of SHOAL_RANK=0)"
check "a killed rank 0 is restarted too" again

complete '{"prompt":"Tell me","max_tokens":150,"ignore_eos":true}' >last & asker=$!
sleep 0.3
kill -TERM $serve_pid
wait $asker
check "SIGTERM lets a running answer finish" grep -q '"finish_reason":"length"' last
wait $serve_pid; code=$?
check "then exits with code 0" [ $code = 0 ]
none_left() { ! pgrep -f "shoal serve.*$work"; }
nothing_left() { none_left && [ -z "$(ls "$work"/*.sock 2>/dev/null)" ]; }
check "and leaves no process and no socket" nothing_left

# not_served MODEL WORDS: it exits with code 1 and prints those words
not_served() {
    refuses 1 "$2" timeout 30 "$shoal" serve --model "$1" --port 0 --runtime-dir "$work" && none_left
}
check "a wrong model gives a one-line error and an exit code" not_served /nowhere "/nowhere: there is no such folder"
cp -r "$root/models/demo" broken && echo "{% if %}" >broken/chat_template.jinja
check "a model with a broken template is reported at once, and not served" \
    not_served broken "broken/chat_template.jinja: line 1"
done_testing
