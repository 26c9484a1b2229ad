#!/usr/bin/env bash
# Random faults under load: ranks and the API are killed or stopped, clients disconnect. With --hosts links are cut
# between hosts made of network namespaces. With --elastic ranks stay away, leave, come back and are added. Every answer
# must be exact, the same as before the faults, in time; only connections to an API that is killed may be cut. The group
# must re-form after each fault, memory and descriptors must stay as they are, and no process may be left at the end.
#   tests/chaos/chaos.sh [--hosts | --elastic] BUILD FAULTS SEED [flags of the server...]
# The seed determines the sequence of faults, but not what the clients happen to do at that moment.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
. "$root/tests/cluster/sshd.sh"
place=one
case $1 in
--hosts)
    why=$(hosts_can && sshd_can) || { echo "skipped: $why"; exit 0; }
    place=hosts; shift ;;
--elastic) place=loose; shift ;;
esac
shoal=$(cd "$1" && pwd)/shoal wanted=$2 seed=$3; shift 3
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
back_s=$((40 * slow)) answer_s=$((60 * slow)) # limits for re-forming the group, and for an answer
work=$(mktemp -d /tmp/shoal-chaos-XXXXXX) && cd "$work" || exit 1
server='' faults=0 ranks=3 frozen_s=$((3 * slow))
[ "${1:-}" != --ranks ] || { ranks=$2; shift 2; }
say() { printf '# %s %s\n' "$(date +%T)" "$*"; }

# --- where it runs: ranks on this machine, with one supervisor or each with its own, or one on each of three hosts ---
one_up() {
    port=$(free_port)
    (cd "$root" && exec "$shoal" serve --ranks "$ranks" --threads 1 --port "$port" --runtime-dir "$work" \
        --grace 2 --frozen-after $frozen_s "$@") \
        >server.log 2>&1 & server=$!
}
# Each rank is a `shoal worker` of its own, in worker.RANK; those that were not there at the start join.
loose_up() {
    local i
    port=$(free_port) meet=127.0.0.1:$(free_port)
    SHOAL_TOKEN=$("$shoal" token) && export SHOAL_TOKEN
    (cd "$root" && exec "$shoal" serve --ranks "$ranks" --rank 0 --coordinator "$meet" --model models/demo --threads 1 \
        --port "$port" --runtime-dir "$work" --grace 2 --frozen-after $frozen_s --degrade-after 1 --rejoin-after 1 \
        "$@") >server.log 2>&1 & server=$!
    for i in $(seq $((ranks - 1))); do worker_up "$i"; done
}
worker_up() { # RANK
    local flags=(--coordinator "$meet" --ranks "$ranks")
    [ "$1" -lt "$ranks" ] || flags=(--join "$meet")
    (cd "$root" && exec "$shoal" worker --rank "$1" "${flags[@]}" --model models/demo --threads 1 \
        --frozen-after $frozen_s) >>server.log 2>&1 & echo $! >"worker.$1"
}
loose_processes() { local w; pgrep -P "$server"; for w in worker.*; do pgrep -P "$(cat "$w")"; done; }
loose_down() { send KILL "$(cat worker.* 2>/dev/null)"; }
one_at() { "$@"; }
one_processes() { pgrep -P "$server"; }
one_down() { :; }
hosts_up_all() {
    port=8100
    hosts_up 3 && sshd_up && cp -r "$root/models/demo" model
    echo '[{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2"}, {"ssh": "h3"}]' >hosts.json
    on_exec 1 env HOME="$work" SSH_OPTIONS="$ssh_options" "$shoal" launch --hostfile "$work/hosts.json" \
        --state-dir "$work/state" --model "$work/model" --threads 1 --port $port \
        --grace 2 --frozen-after $frozen_s --degrade-after 3 --rejoin-after 2 "$@" >server.log 2>&1 &
    server=$!
}
hosts_at() { on 1 "$@"; }
hosts_processes() { local i; for i in 1 2 3; do shoals_on $i; done; }
hosts_down_all() { sshd_down; hosts_down; }
case $place in
one) up=one_up at=one_at processes=one_processes down=one_down ;;
loose) up=loose_up at=one_at processes=loose_processes down=loose_down ;;
hosts) up=hosts_up_all at=hosts_at processes=hosts_processes down=hosts_down_all ;;
esac
# pids VARIABLE=VALUE...: the processes of the group that have all of these in their environment
pids() {
    local pid pair
    for pid in $($processes); do
        tr '\0' '\n' <"/proc/$pid/environ" >environ 2>/dev/null || continue
        for pair in "$@"; do grep -qxE "$pair" environ || continue 2; done
        echo "$pid"
    done
}
has_env() { tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | grep -qx "$2"; } # PROCESS VARIABLE=VALUE
rank_pid() { # RANK
    local pid rest
    case $place-$1 in
    loose-0) rest=$(pgrep -P "$server") && for pid in $rest; do has_env "$pid" SHOAL_PART=engine && echo "$pid"; done ;;
    loose-*) [ ! -e "worker.$1" ] || pgrep -P "$(cat "worker.$1")" ;;
    *) pids SHOAL_PART=engine "SHOAL_RANK=$1" ;;
    esac
}

# --- load ---
# Sampled with a seed, so that a wrong position, penalty or token shows in all that follows.
person='"response_format":{"type":"json_schema","json_schema":{"name":"p","schema":{"type":"object",
    "properties":{"name":{"type":"string","maxLength":40},"age":{"type":"integer"},
    "notes":{"type":"array","items":{"type":"string"}}},
    "required":["name","age","notes"],"additionalProperties":false}}}'
requests=(
    '"content":"What is tensor parallelism?"}],"temperature":0,"max_tokens":60'
    '"content":"What is 37 + 48?"}],"temperature":0.9,"seed":7,"max_tokens":80,"ignore_eos":true'
    '"content":"Tell me a story."}],"temperature":1.2,"top_p":0.9,"seed":8,"max_tokens":200,"ignore_eos":true'
    '"content":"Say hello"}],"temperature":0.8,"seed":9,"max_tokens":150,"min_tokens":100,"presence_penalty":0.6,
     "frequency_penalty":0.4,"repetition_penalty":1.1'
    '"content":"Say hello"}],"temperature":0.9,"seed":10,"max_tokens":90,"ignore_eos":true,"logprobs":true,
     "top_logprobs":2'
    '"content":"A fox and a lantern"}],"temperature":1,"seed":11,"max_tokens":300,"ignore_eos":true,"stop":["qu","0"]'
    '"content":"What is a ring?"}],"temperature":0.9,"seed":12,"max_tokens":80,"ignore_eos":true,"n":2'
    '"content":"Who are you?"}],"temperature":0,"max_tokens":150,'"$person"
    '"content":"Who is he?"}],"temperature":0.9,"seed":13,"max_tokens":150,"min_tokens":60,"logprobs":true,'"$person"
    '"content":"List words"}],"temperature":1.1,"seed":14,"max_tokens":150,"min_tokens":80,
     "grammar":"root ::= \"[\" item (\", \" item)* \"]\"\nitem ::= [a-z]{2,9} | root"'
)
ask() { # INDEX STREAM FILE SECONDS: writes the answer to FILE, the status in its last line; returns curl's exit code
    $at curl -sS -N -m "$4" -H 'Content-Type: application/json' -w '\n%{http_code}' \
        -d "{\"messages\":[{\"role\":\"user\",${requests[$1]},\"stream\":$2}" \
        "http://127.0.0.1:$port/v1/chat/completions" >"$3" 2>"$3.err"
}
# What must be the same: the text, all logprobs and the ends. The choices of a stream with n > 1 come interleaved, so
# those are not streamed.
text_of() {
    grep -oE '"content":"([^"\\]|\\.)*"' "$1" | sed -E 's/^"content":"//; s/"$//' | tr -d '\n'
    grep -oE '"logprob":[^,}]*' "$1" | tr -d '\n'
    grep -oE '"finish_reason":"[a-z_]+"' "$1" | tr -d '\n'
}
api_killed_since() { [ -e api.killed ] && [ "$(stat -c %Y api.killed)" -ge "$1" ]; } # SECOND
# judge INDEX STREAM FILE CODE SINCE: "exact", "cut" (with the API that was killed), "away" (no API, or one that has
# just started), or what is wrong
judge() {
    local status; status=$(tail -n 1 "$3")
    if [ "$4" = 7 ] || [ "$status" = 503 ]; then
        if api_killed_since $(($5 - 10 * slow)); then echo away
        else echo "code $4, status $status: $(cat "$3" "$3.err")"; fi
    elif [ "$4" != 0 ]; then
        if [ "$4" != 28 ] && api_killed_since "$5"; then echo cut; else echo "curl says $4: $(cat "$3.err")"; fi
    elif [ "$status" != 200 ] || grep -q '"error":{' "$3"; then echo "status $status: $(grep -o '"error":{.*' "$3")"
    elif [ "$2" = true ] && ! grep -q '\[DONE\]' "$3"; then echo "the stream does not end with [DONE]"
    elif [ "$(text_of "$3")" != "$(cat "want.$1")" ]; then echo "a different answer: $(text_of "$3")"
    else echo exact; fi
}
client() { # NUMBER: sends requests until ./stop exists
    local i stream code since began verdict
    RANDOM=$((seed + $1))
    while [ ! -e stop ]; do
        i=$((RANDOM % ${#requests[@]})) stream=$([ $((RANDOM % 2)) = 0 ] && echo true || echo false)
        case ${requests[i]} in *'"n":'*) stream=false ;; esac
        # one in eight disconnects early
        if [ $((RANDOM % 8)) = 0 ]; then ask $i "$stream" "left.$1" 0.$((1 + RANDOM % 9)); continue; fi
        since=$(date +%s) began=${EPOCHREALTIME/./}
        ask $i "$stream" "got.$1" "$answer_s"; code=$?
        echo $(((${EPOCHREALTIME/./} - began) / 1000)) >>"waits.$1"
        verdict=$(judge $i "$stream" "got.$1" $code "$since")
        echo "$verdict" >>"verdicts.$1"
        case $verdict in
        exact) ;;
        cut | away) sleep .1 ;;
        *) say "client $1, request $i, stream $stream: $verdict" | tee -a wrong; tail -c 300 "got.$1" ;;
        esac
    done
}

# --- what must not grow ---
# usage: a line for each part of the server: name, resident KiB, open descriptors
usage() {
    local part pid
    for part in api $(seq 0 $((ranks - 1))); do
        if [ "$part" = api ]; then pid=$(pids SHOAL_PART=api); else pid=$(rank_pid "$part"); fi
        [ -n "$pid" ] || continue
        echo "$part $(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status") $(find "/proc/$pid/fd" -mindepth 1 | wc -l)"
    done
}
# Half as much again and 16 MiB, or 12 descriptors: requests come and go while this is measured.
flat() { # EARLY LATE
    awk 'NR == FNR { kib[$1] = $2; fds[$1] = $3; next }
        !($1 in kib) { next }
        { printf "# %s: %d KiB, %d descriptors early, %d KiB, %d late\n", $1, kib[$1], fds[$1], $2, $3
          if ($2 > kib[$1] * 1.5 + 16384 || $3 > fds[$1] + 12) bad = 1 }
        END { exit bad }' "$1" "$2"
}

# --- faults ---
# --- ranks that come and go ---
ready() { $at curl -sf -m 2 -o /dev/null "http://127.0.0.1:$port/health/ready"; }
exact() { ready && ask 0 false again 20 && [ "$(text_of again)" = "$(cat want.0)" ]; }
send() { local pid; for pid in $2; do kill "-$1" "$pid" 2>/dev/null; done; } # SIGNAL "PROCESS..."
health() { $at curl -s -m 2 "http://127.0.0.1:$port/health" >health; }
sized() { health && grep -q "\"ok\":true.*\"world_size\":$1," health; }
# leave RANK, vanish RANK, come RANK: by its own wish, without a word, (again); the group goes on with as many ranks
leave() { kill -TERM "$(cat "worker.$1")"; rm "worker.$1"; here=$((here - 1)); }
vanish() { send KILL "$(rank_pid "$1") $(cat "worker.$1")"; rm "worker.$1"; here=$((here - 1)); }
come() { worker_up "$1"; here=$((here + 1)); }
changed() { # WHAT RANK
    "$1" "$2"
    within $back_s sized "$here" || { say "there are not $here ranks after $1 $2"; cat health; return 1; }
}
# Other shares round differently, so only requests count whose answers are the same in groups of every size.
settle() {
    local i size=0 what
    for what in "come $ranks" "leave 1" "leave $ranks" "vanish 2" "come 2" "come 1"; do
        # shellcheck disable=SC2086
        changed $what || return 1
        for i in "${!requests[@]}"; do
            ask "$i" false quiet "$answer_s" && [ "$(text_of quiet)" = "$(cat "want.$i")" ] && continue
            unset "requests[$i]"
        done
    done
    for i in "${!requests[@]}"; do [ "$i" = $size ] || mv "want.$i" "want.$size"; size=$((size + 1)); done
    requests=("${requests[@]}")
    say "$size requests have the same answer in groups of 1 to $((ranks + 1)) ranks"
    [ "$size" -gt 0 ]
}
# One of the ranks comes, if it is not here, or goes.
membership() {
    local rank=$((1 + RANDOM % ranks)) how=$((RANDOM % 2))
    if [ ! -e "worker.$rank" ]; then what="rank $rank comes"; changed come $rank
    elif [ $how = 0 ]; then what="rank $rank leaves"; changed leave $rank
    else what="rank $rank vanishes"; changed vanish $rank; fi
}

# Some pauses are shorter than the time after which a silent rank is considered lost, some are longer, and some so long
# that its supervisor kills it.
stop_for() { send STOP "$2"; sleep "$1"; send CONT "$2"; } # SECONDS PROCESS
fault() {
    local rank=$((RANDOM % ranks)) time=$((RANDOM % 5)).$((RANDOM % 10)) what rest failed=0
    [ $place != loose ] || [ -e "worker.$rank" ] || rank=0
    case $((RANDOM % 10))-$place in
    [0-4]-loose) membership || failed=1 ;;
    [0-5]-*) what="SIGKILL of rank $rank"; send KILL "$(rank_pid $rank)" ;;
    [67]-*) what="SIGSTOP of rank $rank for $time s"; stop_for "$time" "$(rank_pid $rank)" ;;
    8-*) what="SIGKILL of the API"
        touch api.killed; send KILL "$(pids SHOAL_PART=api)"; touch api.killed ;;
    9-hosts)
        rank=$((2 + RANDOM % 2)) what="a cut of the link of host $rank for $time s"
        cut $rank; sleep "$time"; heal $rank
        ;;
    9-*)
        what="SIGKILL of all ranks"
        send KILL "$(pids SHOAL_PART=engine)"
        ;;
    esac
    faults=$((faults + 1))
    say "$what"
    [ $failed = 0 ] || { tail -n 20 server.log; return 1; }
    within $back_s exact || { say "the group has not re-formed after $what"; tail -n 20 server.log; return 1; }
}

finish() {
    touch stop
    kill "${clients[@]}" "$server" 2>/dev/null
    within 15 not kill -0 "$server" 2>/dev/null || kill -KILL "$server"
    $down; wait 2>/dev/null
    cd / && rm -rf "$work"
}
clients=()
trap finish EXIT
trap 'exit 143' TERM INT

say "seed $seed, $wanted faults, $place"
here=$ranks
$up "$@"
within $((30 * slow)) ready || { say "the server does not start"; cat server.log; exit 1; }
for i in "${!requests[@]}"; do
    ask "$i" false quiet "$answer_s" && text_of quiet >"want.$i" && [ -s "want.$i" ] || { cat quiet; exit 1; }
done
case "$place $*" in
loose*pipeline*) ;; # its answers never change
loose*) settle || { tail -n 40 server.log; exit 1; } ;;
esac
for i in 1 2 3 4; do client "$i" & clients+=($!); done
RANDOM=$seed failed=0
while [ $faults -lt "$wanted" ] && [ $failed = 0 ]; do
    sleep 0.$((RANDOM % 10))
    fault || failed=1
    [ $faults = 3 ] && usage >early
done
usage >late
touch stop; wait "${clients[@]}"
kill -TERM "$server"; send TERM "$(cat worker.* 2>/dev/null)"; within 20 not kill -0 "$server"; wait "$server"; code=$?
left=$($processes)
count() { cat verdicts.* | grep -c "^$1\$"; }
exacts=$(count exact)
say "$faults faults; $exacts answers exact, $(count cut) cut and $(count away) refused as the API was killed," \
    "$(cat wrong 2>/dev/null | wc -l) wrong; the longest took $(sort -n waits.* | tail -n 1) ms"
[ ! -e early ] || flat early late || { say "the server has grown"; failed=1; }
[ "$code" = 0 ] || { say "the server exited with code $code"; failed=1; }
[ -z "$left" ] || { say "processes left: $left"; failed=1; }
[ ! -e wrong ] && [ "$exacts" -gt 0 ] && [ $failed = 0 ] && ! grep -iE 'assert|sanitizer|runtime error' server.log
