#!/usr/bin/env bash
# Several models on one server: they are loaded when they are asked for, and go when their memory is needed.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d /tmp/shoal-models-XXXXXX) && cd "$work" || exit 1
trap 'kill -9 $serve_pid $one_pid 2>/dev/null; rm -rf "$work"' EXIT
unset "${!SHOAL_@}"
serve_pid='' one_pid=''

# The demo model, two of its shape with random weights, one of them in a folder of an organization, one that is
# broken, and one without a tokenizer.
mkdir -p dir/org dir/broken dir/mute elsewhere
cp "$root"/models/demo/{config.json,model.safetensors} dir/mute
ln -s "$root/models/demo" dir/demo
for name in org/first second; do
    "$shoal" synth --shape "$root/models/demo/config.json" --out "elsewhere/${name#org/}" --seed ${#name} >/dev/null
    cp "$root"/models/demo/{tokenizer,tokenizer_config,generation_config}.json "$root/models/demo/chat_template.jinja" \
        "elsewhere/${name#org/}"
done
ln -s ../../elsewhere/first dir/org/first
cp -r elsewhere/second dir/second
echo '{"model_type": "nonesuch"}' >dir/broken/config.json

printf 'name: wrong\ncontext_size: -5\nparameters: {model: demo}\n' >dir/wrong.yaml
printf 'name: fox\nparameters: {model: demo}\n' >dir/twin.yaml
cat >dir/fox.yaml <<END
name: fox
parameters: {model: demo, max_tokens: 5, temperature: 0}
system_prompt: You are a fox.
context_size: 128
END

port_of() { sed -nE 's/.*listening on https?:.*:([0-9]+)$/\1/p' "$1" | tail -n 1; }
# start FLAGS...: serves the folder; two models fit, three do not.
start() {
    "$shoal" serve --models-dir dir --ranks 2 --split 1,1 --threads 1 --host 127.0.0.1 --port 0 --runtime-dir "$work" \
        --memory 300M --kv-tokens 512 "$@" >serve.log 2>&1 &
    serve_pid=$!
    within 30 listening
    port=$(port_of serve.log)
}
listening() { [ -n "$(port_of serve.log)" ]; }
ended() { ! kill -0 "$serve_pid" 2>/dev/null; }
stop() { kill "$serve_pid" && within 30 ended && not grep -qE "AddressSanitizer|Assertion" serve.log; }
get() { curl -s -m 60 "http://127.0.0.1:$port$1"; }
post() { curl -s -m 60 "http://127.0.0.1:$port$1" -d "$2"; }
ask() { # MODEL [MORE]: the text of 24 tokens
    post /v1/completions '{"model":"'"$1"'","prompt":"Once upon a time","max_tokens":24,"temperature":0'"${2:-}"'}' |
        grep -oE '"text":"([^"\\]|\\.)*"'
}
state() { get /v1/models | grep -oE "\"id\":\"$1\"[^}]*" | sed -nE 's/.*"state":"([^"]*)".*/\1/p'; }
is() { [ "$(state "$1")" = "$2" ] || { echo "$1 is $(state "$1"), not $2"; tail -n 5 serve.log; return 1; }; }
rank_of() { pgrep -P "$serve_pid" -f -- "--model dir/$1 " | tail -n 1; }

# What the models say, each alone.
for name in demo org/first second; do
    "$shoal" generate --ranks 2 --split 1,1 --model "dir/$name" --prompt "Once upon a time" --max-tokens 24 \
        --temperature 0 --threads 1 >"want.${name#org/}" 2>/dev/null
done

start
listed() {
    local name
    for name in broken demo org/first second; do is "$name" "not loaded" || return 1; done
    get /api/tags | grep -q '"name":"second"' && get /api/ps | grep -q '"models":\[\]'
}
check "all models are listed" listed
mistaken() {
    grep -q 'dir/wrong.yaml:2: .context_size. must be a whole number .* left out' serve.log &&
        grep -q 'dir/twin.yaml: dir/fox.yaml defines a model .fox. already' serve.log &&
        [ "$(grep -c wrong.yaml serve.log)" = 1 ] || { cat serve.log; return 1; }
}
check "files with mistakes are named once, by line and key, and take no other model away" mistaken

same() { # MODEL
    local text
    text=$(ask "$1")
    text=${text#\"text\":\"}
    [ -n "$text" ] || { echo "no answer"; tail -n 5 serve.log; return 1; }
    diff <(printf '%b' "${text%\"}") <(head -c "$(printf '%b' "${text%\"}" | wc -c)" "want.${1#org/}")
}
check "the first request loads a model" same demo
check "it is loaded then" is demo loaded
both() {
    local one=1
    same org/first & one=$!
    same demo && wait $one && is demo loaded && is org/first loaded
}
check "two models answer at the same time, each as it does alone" both
broken() {
    post /v1/completions '{"model":"broken","prompt":"x"}' | grep -q "cannot be loaded.*nonesuch.*is not supported" &&
        is broken failed && same demo
}
check "a model that cannot be loaded fails its own requests alone, with the reason" broken
# Its ranks come up, the API cannot use it. It must not stay loaded, nor may the second request wait.
mute() {
    local i
    for i in 1 2; do
        curl -s -m 20 "http://127.0.0.1:$port/v1/completions" -d '{"model":"mute","prompt":"x"}' |
            grep -q "cannot be loaded.*tokenizer.json" || { echo "request $i"; return 1; }
    done
    within 20 is mute failed
}
check "a model without a tokenizer fails every request, at once" mute
unknown() { post /v1/chat/completions '{"model":"none","messages":[]}' | grep -qE "model_not_found|messages"; }
check "a model that is not there is not found" unknown
unnamed() { post /v1/completions '{"prompt":"x"}' | grep -q "must name one of the models.*'demo'"; }
check "a request must say which model it means" unnamed
tokens() { post /tokenize '{"model":"org/first","content":"Hello"}' | grep -q '"count":1'; }
check "other endpoints find their model as well" tokens

described() {
    ask_plain() { post /v1/completions '{"model":"'"$1"'","prompt":"Once upon a time"'"$2"'}'; }
    ask_plain fox "" | grep -q '"completion_tokens":5' || { echo "its own limit"; return 1; }
    ask_plain fox ',"max_tokens":7' | grep -q '"completion_tokens":7' || { echo "a request's"; return 1; }
    ask_plain demo ',"max_tokens":7' | grep -q '"completion_tokens":7' || { echo "another model's"; return 1; }
    post /apply-template '{"model":"fox","messages":[{"role":"user","content":"x"}]}' | grep -q "You are a fox" &&
        get /v1/models/fox | grep -q '"max_model_len":128' &&
        post /apply-template '{"model":"demo","messages":[{"role":"user","content":"x"}]}' | not grep -q "You are a fox"
}
check "a YAML file is a model with defaults of its own" described

lru() { same demo && same second && is org/first "not loaded" && is demo loaded; }
check "the least recently used model makes room for a third" lru
again() { same org/first && is demo "not loaded"; }
check "and is loaded again when it is wanted" again
crowd() { # more models than fit, all at once
    local pids=() name
    for name in demo org/first second demo second org/first; do same "$name" & pids+=($!); done
    for pid in "${pids[@]}"; do wait "$pid" || return 1; done
}
check "requests for more models than fit are all answered" crowd

waiting() { # a stream is kept alive while its model is away, and then answered
    same demo && same org/first
    curl -s -N -m 60 "http://127.0.0.1:$port/v1/completions" \
        -d '{"model":"second","prompt":"Once upon a time","max_tokens":24,"temperature":0,"stream":true}' |
        grep -oE '"text":"([^"\\]|\\.)*"' | sed -E 's/^"text":"//; s/"$//' | tr -d '\n' >got
    [ -s got ] && diff <(printf '%b' "$(cat got)") <(head -c "$(printf '%b' "$(cat got)" | wc -c)" want.second)
}
check "a stream waits for its model" waiting

killed() { # of one model's rank: the other goes on, and so does the answer
    local pid other
    same demo && same second || return 1
    other=$(rank_of demo)
    (curl -s -N -m 60 "http://127.0.0.1:$port/v1/completions" \
        -d '{"model":"second","prompt":"Hello","max_tokens":400,"temperature":0,"ignore_eos":true,"stream":true}' \
        >cut.stream) &
    pid=$!
    within 30 grep -q text cut.stream && kill -9 "$(rank_of second)"
    same demo && wait $pid && grep -q '"finish_reason":"length"' cut.stream && same second &&
        [ "$(rank_of demo)" = "$other" ]
}
check "kill -9 of one model's rank does not touch the other, and its answer goes on" killed

unload() {
    post /api/generate '{"model":"second","keep_alive":0,"stream":false}' | grep -q '"done_reason":"unload"' &&
        within 30 is second "not loaded" && is demo loaded
}
check "keep_alive 0 unloads a model at once" unload
new() {
    cp -r elsewhere/second dir/.third && mv dir/.third dir/third
    within 30 is third "not loaded" && post /v1/completions '{"model":"third","prompt":"x","max_tokens":1}' |
        grep -q '"model":"third"' || return 1
    post /api/generate '{"model":"third","keep_alive":0,"stream":false}' >/dev/null
    rm -r dir/third
    within 30 not grep -q third <(get /v1/models)
}
check "folders come and go without a restart" new
labels() { get /metrics | grep -q 'shoal_engine_up{model="demo"} 1'; }
check "metrics tell models apart" labels
check "it stops when it is told to" stop

start --pin org/first --keep-alive 1s --model dir/demo
pinned() {
    within 30 is org/first loaded && post /v1/completions '{"prompt":"x","max_tokens":1}' | grep -q '"model":"demo"' ||
        return 1
    within 30 is demo "not loaded" && is org/first loaded
}
check "--pin keeps a model, --keep-alive lets others go, --model is the default" pinned
stop
start --memory 140M --kv-tokens 100000
large() { post /v1/completions '{"model":"second","prompt":"x"}' | grep -qE "does not fit: .* MiB are missing"; }
check "a model that can never fit is refused with what is missing" large
stop

refused() { # PATTERN FLAGS...
    refuses 1 "$1" timeout 60 "$shoal" serve --models-dir dir --port 0 --runtime-dir "$work" "${@:2}"
}
mistakes() {
    refused "it takes one size" --memory 1G,2G && refused "not a duration" --keep-alive soon &&
        refused "no model 'none' in dir" --pin none && refused "every model has one of its own" --socket x &&
        refused "cannot be done with --backend mpi" --backend mpi && refused "a token for one model" --p2p &&
        OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 refused "cannot be done under mpirun"
}
check "mistakes are named before anything is started" mistakes

port=$(free_port)
"$shoal" launch --ranks 2 --state-dir "$work/state" --models-dir dir --split 1,1 --threads 1 --kv-tokens 512 \
    --host 127.0.0.1 --port "$port" >serve.log 2>&1 &
serve_pid=$!
launched() {
    within 60 curl -sf -o /dev/null "http://127.0.0.1:$port/health/ready" && same demo &&
        prints "model demo: loaded" "$shoal" status --state-dir "$work/state" &&
        refuses 1 "are those of its hostfile" "$shoal" hosts remove 1 --state-dir "$work/state" && same demo &&
        "$shoal" stop --state-dir "$work/state" && within 30 ended
}
check "a folder of models is launched on several hosts" launched
done_testing
