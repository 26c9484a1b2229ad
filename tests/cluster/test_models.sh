#!/usr/bin/env bash
# Several models over two hosts: the server's host decides, a worker runs the other ranks.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}"
if ! why=$(hosts_can); then skip "several models on two hosts" "$why"; done_testing; fi
work=$(mktemp -d) && cd "$work" || exit 1
hosts_up 2
serve_pid='' worker_pid=''
trap 'kill -9 $serve_pid $worker_pid 2>/dev/null; hosts_down; cd /; rm -rf "$work"' EXIT

mkdir -p dir
ln -s "$root/models/demo" dir/demo
"$shoal" synth --shape "$root/models/demo/config.json" --out dir/other --seed 5 >/dev/null
cp "$root"/models/demo/{tokenizer,tokenizer_config}.json dir/other
SHOAL_TOKEN=$("$shoal" token); export SHOAL_TOKEN
flags=(--models-dir "$work/dir" --threads 1 --split "1,1")
on_exec 1 "$shoal" serve "${flags[@]}" --coordinator 10.77.0.1:9000 --ranks 2 --host 127.0.0.1 --port 8080 \
    --runtime-dir "$work" --memory 300M --kv-tokens 512 >serve.log 2>&1 &
serve_pid=$!

ask() { # MODEL: the text of 24 tokens
    on 1 curl -s -m 60 http://127.0.0.1:8080/v1/completions \
        -d '{"model":"'"$1"'","prompt":"Once upon a time","max_tokens":24,"temperature":0}' |
        sed -nE 's/.*"text":"(([^"\\]|\\.)*)".*/\1/p'
}
state() {
    on 1 curl -s -m 10 http://127.0.0.1:8080/v1/models | grep -oE "\"id\":\"$1\"[^}]*" |
        sed -nE 's/.*"state":"([^"]*)".*/\1/p'
}
is() {
    [ "$(state "$1")" = "$2" ] || { echo "$1 is $(state "$1"), not $2"; tail -n 5 serve.log worker.log; return 1; }
}
for name in demo other; do
    "$shoal" generate --ranks 2 --split 1,1 --model "dir/$name" --prompt "Once upon a time" --max-tokens 24 \
        --temperature 0 --threads 1 2>/dev/null >"want.$name"
done
same() {
    local text
    text=$(printf '%b' "$(ask "$1")")
    [ -n "$text" ] && [ "${text:0:40}" = "$(head -c 40 "want.$1")" ] ||
        { echo "'$text', not '$(cat "want.$1")'"; tail -n 5 serve.log worker.log; return 1; }
}
check "models are listed before there is a worker" within 30 is demo "not loaded"
# It waits for the worker, without which the group is not complete.
same demo >first 2>&1 & first_pid=$!
check "the first request waits" within 30 is demo loading
on_exec 2 "$shoal" worker "${flags[@]}" --join 10.77.0.1:9000 >>worker.log 2>&1 &
worker_pid=$!
wait $first_pid; first_rc=$?
answered() { cat first; [ $first_rc = 0 ]; }
check "and is answered when the worker is there" answered
ranks() { [ "$(on 1 curl -s http://127.0.0.1:8080/health | grep -oE '"world_size":[0-9]+')" = '"world_size":2' ]; }
check "both hosts take part" ranks
check "a second model is loaded beside the first" same other
check "which is still there" is demo loaded
crash() {
    local rank
    rank=$(pgrep -P "$worker_pid" -f "shoal rank .*, demo")
    kill -9 $rank && same other && same demo
}
check "kill -9 of one model's rank on the worker leaves both usable" crash
unload() {
    on 1 curl -s http://127.0.0.1:8080/api/generate -d '{"model":"demo","keep_alive":0,"stream":false}' >/dev/null
    within 30 is demo "not loaded" && same demo
}
check "a model is unloaded on both hosts, and loaded again" unload
done_testing
