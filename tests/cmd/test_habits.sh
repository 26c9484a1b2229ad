#!/usr/bin/env bash
# What users of related projects type from habit: .env.example, hostfiles/, launch.sh, make targets, flags; and what the
# program says at the terminal. One launched cluster serves all claims that need one.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
scratch
unset "${!SHOAL_@}" HOSTFILE WORKER_HOSTS WORKER_SSH # SHOAL_BUILD is not a setting of the program
export SHOAL_RUNTIME_DIR=$work HOME=$work

values() { sed 's/  # .*//; /^env-file/d' <<<"$("$shoal" serve "$@" --print-config)"; }
example() {
    local name
    diff <(values) <(values --env-file "$root/.env.example") || return 1
    "$shoal" help --markdown >reference
    for name in $(sed -nE 's/^#?([A-Z_]+)=.*/\1/p' "$root/.env.example"); do
        grep -q "\`$name\`" reference || { echo "$name is not a setting"; return 1; }
    done
}
check ".env.example has the defaults, and only names that are settings" example
hostfiles() {
    local file
    for file in hosts-1node.json hosts-2node.json hosts.json.example; do
        exits 0 "$shoal" hosts check "$root/hostfiles/$file" || { cat out; return 1; }
    done
}
check "the hostfiles of hostfiles/ are valid" hostfiles
grouped() {
    prints "^Serve a model:" "$shoal" help && not prints "^  agent " "$shoal" help &&
        prints "^  agent " "$shoal" help --all && not prints "ready-fd" "$shoal" help serve &&
        prints "help serve --all. shows [0-9]+ more flags" "$shoal" serve --help &&
        prints "ready-fd" "$shoal" serve --help --all
}
check "help has sections; what is internal shows with --all" grouped
meant() {
    refuses 2 "did you mean --port" "$shoal" serve --prot 1 && refuses 2 "did you mean serve" "$shoal" sevre &&
        refuses 2 "flags come after a command" "$shoal" --port 1 &&
        refuses 2 "did you mean serve" "$shoal" help sevre && refuses 2 "did you mean detect" "$shoal" hosts detct
}
check "what was mistyped is guessed" meant
mkdir empty
no_model() {
    refuses 1 "empty is not a model: a model is a folder with config.json" "$shoal" serve --model "$PWD/empty" &&
        refuses 1 "nowhere: there is no such folder" "$shoal" info --model "$PWD/nowhere" && touch x.gguf &&
        refuses 1 "x.gguf is a file; a model is a folder" "$shoal" serve --model x.gguf
}
check "a folder without a model is named as such" no_model
colors() { # in a terminal there is colour, unless NO_COLOR is set
    local check="$shoal hosts check $root/hostfiles/hosts-1node.json"
    export TERM=xterm
    script -qec "$check" /dev/null | grep -q $'\e\[32mok' && not grep -q $'\e' <<<"$($check)" &&
        not grep -q $'\e' <<<"$(NO_COLOR=1 script -qec "$check" /dev/null)"
}
if command -v script >/dev/null; then check "colour on a terminal, none elsewhere and with NO_COLOR" colors
else skip "colour on a terminal" "script(1) is not here"; fi
side_by_side() {
    prints "^ +localhost +127.0.0.1" "$shoal" hosts compare localhost 127.0.0.1 &&
        prints "^shoal +$("$shoal" --version | sed 's/shoal //') +[0-9]" "$shoal" hosts compare localhost 127.0.0.1 &&
        prints "^2 hosts, 0 differences" "$shoal" hosts compare localhost 127.0.0.1
}
check "hosts are compared side by side" side_by_side

lines() { # a message over two lines; what follows /exit is not read
    printf '%s\n' 'a\' b '/save talk.json' /exit '/save never.json' |
        "$shoal" chat --model "$root/models/demo" --max-tokens 2 >/dev/null &&
        [ "$(jq -c '.[0].content' talk.json)" = '"a\nb"' ] && [ ! -e never.json ]
}
check "a backslash continues a message of a chat, /exit leaves it" lines

small() { # KV_CACHE_RESERVED_MEMORY_MB is what the cache may have; a context that is cut is named with its settings
    KV_CACHE_RESERVED_MEMORY_MB=1 "$shoal" serve --ranks 1 --port 0 2>small.log >/dev/null & local pid=$! rc
    within 60 grep -q "capacity of 128 tokens, .*--context, --kv-tokens" small.log; rc=$?
    kill $pid; wait $pid 2>/dev/null; return $rc
}
check "too little memory names the settings that help" small

# launch.sh in a tree of its own, which has the program and nothing to build.
mkdir -p tree/tools tree/build state runs
cp "$root/launch.sh" tree/ && ln -s "$shoal" tree/build/shoal
printf '#!/bin/sh\n' >tree/tools/setup.sh && chmod +x tree/tools/setup.sh
printf 'program:\n\t@true\n' >tree/Makefile
port=$(free_port)
export API_PORT=$port SHOAL_STATE=$work/state MODEL_DIR=$root/models/demo
part() { # NAME, of the running cluster
    pgrep -x "$1" -P "$(ps -o ppid= -p "$(jq '.ranks[0].pid' "$work/state/launch.json")" | tr -d ' ')"
}
start() { # [--detect]
    exits 0 tree/launch.sh start "$@" --cwd "$work/runs" --continuous-batching || { cat out err; return 1; }
}
found() {
    echo '[{"ssh": "localhost", "ips": ["127.0.0.1"]}]' >tree/hosts.json
    start && grep -q "the hosts of hosts.json" out && grep -q "^1 rank is ready" err &&
        grep -q "^.*continuous-batching is not used here" err && [ "$(grep -c continuous-batching err)" = 1 ]
}
check "launch.sh start finds hosts.json; a flag that has no effect is named once" found
titles() { # the parts are told apart, and run where --cwd says
    local api engine
    api=$(part shoal-api) && engine=$(part shoal-rank-0) &&
        [ "$(tr '\0' ' ' <"/proc/$engine/cmdline" | cut -c1-21)" = "shoal rank 0 (engine)" ] &&
        [ -n "$api" ] && [ "$(readlink "/proc/$engine/cwd")" = "$work/runs" ]
}
if [ -d /proc/self/fd ]; then
    check "process titles tell the parts apart; ranks run in --cwd" titles
else skip "process titles" "there is no /proc"; fi
logs() {
    curl -s "http://127.0.0.1:$port/health" >/dev/null
    grep -q ready tree/server.log && within 5 grep -q /health tree/api.log
}
check "server.log and api.log lead to the logs" logs
check "monitor finds the launched cluster" prints "demo +healthy" env -u API_PORT "$shoal" monitor --once
check "status shows the memory of the ranks" prints "^memory  rank 0: [0-9.]+ of [0-9.]+ GiB used" "$shoal" status
talks() { env -u MODEL_DIR "$shoal" chat <<<hi 2>&1 >/dev/null; }
check "chat finds the server" prints "using the server at http://127.0.0.1:$port" talks
taken() {
    refuses 1 "port $port of 127.0.0.1 is in use by another program: .*--port" timeout 20 "$shoal" serve --port "$port"
}
check "a taken port is named, with advice" taken
check "hosts clean refuses while a rank runs" refuses 1 "stop the cluster first" "$shoal" hosts clean
replaced() {
    local old; old=$(part shoal-api)
    rm tree/hosts.json
    WORKER_SSH=localhost start --detect && grep -q '"ssh": "localhost"' tree/hosts.json &&
        [ "$(part shoal-api)" != "$old" ] && not kill -0 "$old" 2>/dev/null
}
check "launch.sh start --detect writes hosts.json, and replaces a running cluster" replaced
lost() {
    local api; api=$(part shoal-api)
    rm -rf state
    exits 0 "$shoal" stop && grep -q "its files in .* were gone" out && not kill -0 "$api" 2>/dev/null
}
check "stop finds a cluster whose state folder is lost" lost
defined() { # the token for the hub goes to ranks that read from there
    printf 'name: tiny\ncontext_size: 256\nparameters:\n  model: %s\n' "$root/models/demo" >tiny.yaml
    exits 0 env HF_TOKEN=hf_x "$shoal" launch --detach --ranks 1 --model tiny.yaml --shares-from hub ||
        { cat err; return 1; }
    curl -s "http://127.0.0.1:$port/v1/models" | grep -q '"id":"tiny"' &&
        grep -q "HF_TOKEN='hf_x'" state/settings.env &&
        exits 0 "$shoal" restart && grep -q "renewed: the rank is ready" out && exits 0 "$shoal" stop &&
        exits 0 env HF_TOKEN=hf_x "$shoal" launch --prepare --ranks 1 --model tiny.yaml && not grep -rq hf_x state
}
check "launch takes a model in YAML, and hands the token for the hub to ranks that need it" defined
mkdir -p state/bin && chmod 700 state && echo x >state/bin/shoal-0 && echo t >state/token
cleaned() { exits 0 "$shoal" hosts clean && [ ! -e state/bin ] && [ -e state/token ]; }
check "hosts clean removes programs and keeps the token" cleaned
opened() {
    printf '#!/bin/sh\necho "opened $1"\n' >browser && chmod +x browser
    prints "opened http://127.0.0.1:$port/dashboard" make -s -C "$root" -o program dashboard BROWSER="$work/browser" \
        SHOAL="$shoal"
}
check "make dashboard opens the browser" opened
done_testing
