#!/usr/bin/env bash
# Models by name: commands pull what is not there, `models` lists what is, `models rm` removes it.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { skip "models arrive by name" "python3 is missing"; done_testing; }
scratch
hub_start
unset SHOAL_MODEL MODEL_DIR MODEL_REPO
generate() { "$shoal" generate --prompt "A rank" --max-tokens 4 --temperature 0 "$@"; }

pulls_first() {
    forget; exits 0 generate --model org/demo && whole && [ -s out ] || return 1
    calm; exits 0 generate --model org/demo && [ ! -s "$requests" ] # found, without asking
}
completes() { # what another tool has begun: a snapshot without its weights
    forget; exits 0 pull org/demo || return 1
    rm "$(snapshot)/model.safetensors" "$(blobs)"/"$(sum256 hub/org/demo/model.safetensors)"
    refuses 1 "offline: model 'org/demo' is in the cache, but not all of it" generate --offline --model org/demo &&
        exits 0 generate --model org/demo && whole
}
stays_offline() {
    forget; refuses 1 "^shoal: offline: model 'org/demo' not found" generate --offline --model org/demo &&
        HF_HUB_OFFLINE=1 refuses 1 "^shoal: offline" "$shoal" serve --port 0 --model org/demo && [ ! -s "$requests" ]
}
serves() { # once for all its parts; without the token, which is not theirs; and no client deletes what is served
    local port api deleted
    forget; faults '{"token": {"value": "t0ken"}}'; port=$(free_port)
    HF_TOKEN=t0ken "$shoal" serve --model org/demo --port "$port" --ranks 2 --manage-models >serve.log 2>&1 & pid=$!
    within 30 curl -sf -m 2 "http://127.0.0.1:$port/health" || { cat serve.log; kill $pid; return 1; }
    api=$(curl -s "http://127.0.0.1:$port/v1/models" | jq -r '.data[0].id')
    deleted=$(curl -s -X DELETE "http://127.0.0.1:$port/api/delete" -d '{"model":"org/demo"}')
    secrets=0
    for child in $(cat "/proc/$pid/task/$pid/children"); do
        ! grep -qa t0ken "/proc/$child/environ" || secrets=$((secrets + 1))
    done
    kill $pid; wait $pid
    gives '{"error":"org/demo is being served"}' echo "$deleted" && gives org/demo echo "$api" &&
        gives 0 echo $secrets && whole && gives 1 grep -c '/api/models' "$requests"
}
shares() { # a worker without a copy, which needs the token and keeps nothing in the hub's cache
    local port ranks served worker rc=0
    forget; HF_TOKEN=t0ken pull org/demo >/dev/null || return 1
    faults '{"token": {"value": "t0ken"}}'; port=$(free_port); ranks=$(free_port)
    SHOAL_TOKEN=$("$shoal" token); export SHOAL_TOKEN
    "$shoal" serve --model org/demo --ranks 2 --rank 0 --coordinator "127.0.0.1:$ranks" --port "$port" \
        >serve.log 2>&1 & served=$!
    HF_TOKEN=t0ken HF_HOME=$work/none XDG_CACHE_HOME=$work/shards "$shoal" worker --ranks 2 --rank 1 \
        --coordinator "127.0.0.1:$ranks" --shares-from hub >worker.log 2>&1 & worker=$!
    within 60 curl -sf -m 2 "http://127.0.0.1:$port/health" >/dev/null &&
        grep -q 'pinned by commit and ETag, but not hashed' worker.log &&
        grep -qE ': 0\.0 MB came from rank 0, .* [1-9][0-9.]* MB from the hub' worker.log && [ ! -e none ] ||
        { cat serve.log worker.log; rc=1; }
    kill $served $worker; wait $served $worker
    unset SHOAL_TOKEN
    return $rc
}
launches() {
    local port
    forget; port=$(free_port)
    timeout 60 "$shoal" launch --model org/demo --port "$port" --ranks 1 --detach --state-dir "$work/state" \
        >launch.log 2>&1
    local rc=$?
    "$shoal" stop --state-dir "$work/state" >>launch.log 2>&1
    [ $rc = 0 ] || { cat launch.log; return 1; }
    whole && ! grep -rq t0ken state
}
api_start() { # FLAGS...: an API without an engine; sets $api and $api_pid
    local port
    port=$(free_port); api=http://127.0.0.1:$port
    "$shoal" api --socket "$work/none.sock" --port "$port" --manage-models "$@" 2>api.log & api_pid=$!
    within 20 curl -sf -m 2 -o /dev/null "$api/health/live" || { cat api.log; return 1; }
}
api_stop() { kill $api_pid; wait $api_pid; }
ollama() { curl -sS -m 60 "$api$1" "${@:2}"; } # PATH CURL-ARGS...
by_clients() {
    forget; api_start || return 1
    ollama /api/pull -d '{"model":"org/demo"}' >lines
    gives '{"status":"pulling manifest"}' head -n 1 lines && gives '{"status":"success"}' tail -n 1 lines &&
        grep -qE '^\{"status":"downloading","total":[0-9]+,"completed":[0-9]+\}$' lines && whole || return 1
    gives '{"status":"success"}' ollama /api/pull -d '{"name":"org/demo","stream":false}' || return 1
    ollama /api/pull -d '{"model":"org/none"}' | tail -n 1 >last
    grep -q '^{"error":".*org/none' last || { cat last; return 1; }
    gives 400 ollama /api/pull -d '{"model":"llama3","stream":false}' -o body -w '%{http_code}' &&
        grep -q "'llama3' is not the name of a model on the hub" body || return 1
    gives 200 ollama /api/delete -X DELETE -d '{"model":"org/demo"}' -o body -w '%{http_code}' &&
        not test -e "$(snapshot)" || return 1
    gives 404 ollama /api/delete -X DELETE -d '{"model":"org/demo"}' -o body -w '%{http_code}' && api_stop
}
keyed_clients() {
    local admin=sk-admin-7hWm29Kc5r8t user=sk-user-4fZq81Lx0p2s
    printf '%s\n{"name": "user", "key": "%s"}\n' $admin $user >keys.txt
    forget; api_start --api-key-file keys.txt || return 1
    gives 403 ollama /api/pull -H "Authorization: Bearer $user" -d '{"model":"org/demo"}' -o body -w '%{http_code}' &&
        grep -q '\\"admin\\": true' body && not test -e "$(snapshot)" || return 1
    gives '{"status":"success"}' \
        ollama /api/pull -H "Authorization: Bearer $admin" -d '{"name":"org/demo","stream":false}' && whole && api_stop
}
begun() { ls "$(blobs big)"/*.incomplete >/dev/null 2>&1; }
unlocked() { for lock in "$HF_HOME/hub/.locks/models--org--big"/*; do flock -n "$lock" true || return 1; done; }
gone_clients() { # and the process that downloads ends with the API
    local child
    forget; faults '{"files": {"rate": 1000000}}'; api_start || return 1
    ollama /api/pull -d '{"model":"org/big"}' >lines & pid=$!
    within 20 begun || { cat lines api.log; return 1; }
    kill $pid; within 20 unlocked || return 1
    child=$(pgrep -P "$api_pid"); api_stop; within 20 not kill -0 "$child"
}
typos() { # found without a network
    export HF_ENDPOINT=http://127.0.0.1:9
    refuses 1 "did you mean org/demo\? It is here: .*org/dmeo" generate --model org/dmeo &&
        refuses 1 "not found: no such folder, nor in the Hugging Face cache" generate --model dmo &&
        refuses 1 "did you mean org/demo" generate --offline --model org/demos &&
        refuses 1 "./models/dmeo: there is no such folder" generate --model ./models/dmeo
}
others_do_not_pull() { # they do not need the weights; the error says what does
    forget; refuses 1 "no such folder.*shoal pull org/demo" "$shoal" tokenize --model org/demo x &&
        [ ! -s "$requests" ]
}

# The list.
field() { "$shoal" models --json | jq -r ".[] | select(.name == \"$1\") | .$2"; }
lists() {
    forget; gives "no models here; \`shoal pull ORG/NAME\` downloads one" "$shoal" models &&
        exits 0 pull org/demo && mkdir -p "$HF_HOME/hub/models--org--half/blobs" || return 1
    head -c 5000 /dev/zero >"$HF_HOME/hub/models--org--half/blobs/x.incomplete"
    mkdir -p mine/org/odd && cp hub/org/demo/* mine/org/odd/ 2>/dev/null
    jq '.model_type = "odd"' hub/org/demo/config.json >mine/org/odd/config.json
    prints 'org/demo +0.01 GB +cache +mlx +qwen3 +affine, 4 bits in groups of 64 +yes' "$shoal" models &&
        prints 'org/half +0.00 GB .*incomplete: `shoal pull` goes on' "$shoal" models &&
        gives 5000 field org/half bytes && gives false field org/half complete &&
        gives mlx field org/demo format && gives qwen3 field org/demo family && gives 2048 field org/demo fits_tokens &&
        prints "$work/mine/org/odd .*cannot be loaded: .*model_type" "$shoal" models --model-cache "$work/mine"
}
two_revisions() { # of which the second shares all files but one with the first
    local other=$HF_HOME/hub/models--org--demo/snapshots/2222222222222222222222222222222222222222
    forget; exits 0 pull org/demo && cp -a "$(snapshot)" "$other" || return 1
    echo 2222222222222222222222222222222222222222 >"$HF_HOME/hub/models--org--demo/refs/old"
    echo '{}' >"$(blobs)/aaaa"; ln -sf ../../blobs/aaaa "$other/generation_config.json"
}
removes_a_revision() {
    two_revisions && prints 'org/demo@2{40}' "$shoal" models &&
        exits 0 "$shoal" models rm --yes org/demo@old && grep -q "removed org/demo@old" out && whole &&
        [ ! -e "$(blobs)/aaaa" ] && [ ! -e "$HF_HOME/hub/models--org--demo/refs/old" ] &&
        gives 1 echo "$("$shoal" models --json | jq length)"
}
removes() {
    two_revisions && exits 0 "$shoal" models rm --yes org/demo && gives "[]" "$shoal" models --json &&
        [ ! -e "$HF_HOME/hub/models--org--demo" ] && [ ! -e "$HF_HOME/hub/.locks/models--org--demo" ]
}
asks() {
    forget; exits 0 pull org/demo || return 1
    refuses 1 "nothing was removed: pass --yes" "$shoal" models rm org/demo && whole || return 1
    echo n | script -qec "$shoal models rm org/demo" /dev/null >out; 
    grep -q 'Remove org/demo, 0.01 GB, from .*?' out && whole || return 1
    echo y | script -qec "$shoal models rm org/demo" /dev/null >out; [ ! -e "$(blobs)" ]
}
refuses_to_remove() {
    forget; exits 0 pull org/demo || return 1
    refuses 1 "no cache has the model org/none" "$shoal" models rm --yes org/none &&
        refuses 1 "has no revision 'v7'" "$shoal" models rm --yes org/demo@v7 &&
        refuses 1 "is not the name of a model in a cache" "$shoal" models rm --yes ../hf &&
        refuses 2 "usage: shoal models" "$shoal" models rm || return 1
    (exec 9>"$HF_HOME/hub/.locks/models--org--demo/$(sum256 hub/org/demo/model.safetensors).lock"; flock 9
        refuses 1 "org/demo is being downloaded" "$shoal" models rm --yes org/demo) && whole
}
# .env of the current folder, which may have come with a download, does not decide who gets the token.
endpoint_of_a_folder() {
    calm; mkdir -p there && echo 'HF_ENDPOINT=http://127.0.0.1:9' >there/.env
    (cd there && env -u HF_ENDPOINT HF_HUB_OFFLINE=1 "$shoal" pull org/none 2>&1) >out
    grep -q "HF_ENDPOINT is ignored: it can run code or give a secret away" out
}
made() { # make's targets
    local make=(make -s -C "$root" --no-print-directory SHOAL="$shoal")
    forget; "${make[@]}" download MODEL=org/demo >out 2>err && whole || { cat out err; return 1; }
    "${make[@]}" models-local >out 2>err || return 1
    grep -q "org/demo" out && grep -q "models/demo " out
}

check "a command pulls a model that is not there, once" pulls_first
check "it completes one of which a part is missing" completes
check "offline it does not" stays_offline
check "serve pulls before it starts its parts, which get no token" serves
check "a worker fetches its share from the hub, with its token" shares
check "launch pulls for a rank on this machine" launches
check "a typo is found without a network" typos
check "clients of the API download and delete models, if the server lets them" by_clients
check "with keys, only those of administrators" keyed_clients
check "a download ends when its client leaves, and its process with the API" gone_clients
check "commands that need no weights do not pull" others_do_not_pull
check "models lists what is here: size, format, family, quantization, whether it fits" lists
check "a revision is removed with the files that no other uses" removes_a_revision
check "a model is removed" removes
if command -v script >/dev/null; then check "a terminal is asked first" asks
else skip "a terminal is asked first" "the program script is missing"; fi
check "what is not there or in use is not removed" refuses_to_remove
check "a .env that was merely found does not name the hub" endpoint_of_a_folder
if [ "$(basename "$SHOAL_BUILD")" = release ]; then check "make download and make models-local use these" made
else skip "make download and make models-local use these" "tested with the release build"; fi
done_testing
