#!/usr/bin/env bash
# Random faults under load: ranks and the API are killed or stopped, clients disconnect, and with --hosts links are cut
# between hosts made of network namespaces. Every answer must be exact (the same as before the faults) or end with a
# clear error, in time; the group must re-form after each fault; no process may be left at the end.
#   tests/chaos/chaos.sh [--hosts] BUILD SECONDS SEED [flags of the server...]
# The seed determines the sequence of faults, but not what the clients happen to do at that moment.
. "$(dirname "$0")/../tap.sh"
. "$root/tests/cluster/hosts.sh"
. "$root/tests/cluster/sshd.sh"
place=one
if [ "$1" = --hosts ]; then
    why=$(hosts_can && sshd_can) || { echo "skipped: $why"; exit 0; }
    place=hosts; shift
fi
shoal=$(cd "$1" && pwd)/shoal seconds=$2 seed=$3; shift 3
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
back_s=$((40 * slow)) answer_s=$((60 * slow)) # limits for re-forming the group, and for an answer
work=$(mktemp -d /tmp/shoal-chaos-XXXXXX) && cd "$work" || exit 1
server='' faults=0
say() { printf '# %s %s\n' "$(date +%T)" "$*"; }

# --- where it runs: three ranks on this machine, or one on each of three hosts ---
one_up() {
    port=$(free_port)
    (cd "$root" && exec "$shoal" serve --ranks 3 --threads 1 --port "$port" --runtime-dir "$work" --grace 2 "$@") \
        >server.log 2>&1 & server=$!
}
one_at() { "$@"; }
one_processes() { pgrep -P "$server"; }
one_down() { :; }
hosts_up_all() {
    port=8100
    hosts_up 3 && sshd_up && cp -r "$root/models/demo" model
    echo '[{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2"}, {"ssh": "h3"}]' >hosts.json
    on_exec 1 env HOME="$work" SSH_OPTIONS="$ssh_options" "$shoal" launch --hostfile "$work/hosts.json" \
        --state-dir "$work/state" --model "$work/model" --threads 1 --port $port --grace 2 "$@" >server.log 2>&1 &
    server=$!
}
hosts_at() { on 1 "$@"; }
hosts_processes() { local i; for i in 1 2 3; do shoals_on $i; done; }
hosts_down_all() { sshd_down; hosts_down; }
case $place in
one) up=one_up at=one_at processes=one_processes down=one_down ;;
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
rank_pid() { if [ "$1" = 0 ]; then pids SHOAL_PART=engine SHOAL_RANK=0; else pids "SHOAL_RANK=$1" | tail -n 1; fi; }

# --- load ---
prompts=("What is tensor parallelism?" "What is 37 + 48?" "Tell me a story about a fox and a lantern." "Say hello")
ask() { # INDEX STREAM FILE SECONDS: writes the answer to FILE, the status in its last line; returns curl's exit code
    local body
    body=$(printf '{"messages":[{"role":"user","content":"%s"}],"temperature":0,"max_tokens":%d,"stream":%s}' \
        "${prompts[$1]}" $((20 + 20 * $1)) "$2")
    $at curl -sS -N -m "$4" -H 'Content-Type: application/json' -d "$body" -w '\n%{http_code}' \
        "http://127.0.0.1:$port/v1/chat/completions" >"$3" 2>"$3.err"
}
text_of() { grep -oE '"content":"([^"\\]|\\.)*"' "$1" | sed -E 's/^"content":"//; s/"$//' | tr -d '\n'; }
# The connection may be refused or cut only while the API is down.
api_was_away() { [ -e api.killed ] && [ "$(stat -c %Y api.killed)" -ge $(($1 - back_s)) ]; } # SINCE
# judge INDEX STREAM FILE CODE SINCE: "exact", "error" (a clear one), or what is wrong
judge() {
    local status; status=$(tail -n 1 "$3")
    if [ "$4" != 0 ]; then
        if [ "$4" != 28 ] && api_was_away "$5"; then echo error; else echo "curl says $4: $(cat "$3.err")"; fi
    elif grep -q '"error":{"message":"[^"]' "$3"; then echo error
    elif [ "$status" != 200 ]; then echo "status $status without an error"
    elif [ "$2" = true ] && ! grep -q '\[DONE\]' "$3"; then echo "the stream does not end with [DONE]"
    elif [ "$(text_of "$3")" != "$(cat "want.$1")" ]; then echo "a different answer: $(text_of "$3")"
    else echo exact; fi
}
client() { # NUMBER: sends requests until ./stop exists
    local i stream code since verdict
    RANDOM=$((seed + $1))
    while [ ! -e stop ]; do
        i=$((RANDOM % ${#prompts[@]})) stream=$([ $((RANDOM % 2)) = 0 ] && echo true || echo false)
        # one in eight disconnects early
        if [ $((RANDOM % 8)) = 0 ]; then ask $i "$stream" "left.$1" 0.$((1 + RANDOM % 9)); continue; fi
        since=$(date +%s)
        ask $i "$stream" "got.$1" "$answer_s"; code=$?
        verdict=$(judge $i "$stream" "got.$1" $code "$since")
        echo "$verdict" >>"verdicts.$1"
        case $verdict in
        exact) ;;
        error) sleep .2 ;;
        *) say "client $1, prompt $i, stream $stream: $verdict" | tee -a wrong; tail -c 300 "got.$1" ;;
        esac
    done
}

# --- faults ---
ready() { $at curl -sf -m 2 -o /dev/null "http://127.0.0.1:$port/health/ready"; }
exact() { ready && ask 0 false again 20 && [ "$(text_of again)" = "$(cat want.0)" ]; }
send() { local pid; for pid in $2; do kill "-$1" "$pid" 2>/dev/null; done; } # SIGNAL "PROCESS..."
# Some pauses are shorter than the time after which a silent rank is considered lost, some are longer.
stop_for() { send STOP "$2"; sleep "$1"; send CONT "$2"; } # SECONDS PROCESS
fault() {
    local rank=$((RANDOM % 3)) time=$((RANDOM % 4)).$((RANDOM % 10)) what
    case $((RANDOM % 10)) in
    [0-3]) what="SIGKILL of rank $rank"; send KILL "$(rank_pid $rank)" ;;
    [4-6]) what="SIGSTOP of rank $rank for $time s"; stop_for "$time" "$(rank_pid $rank)" ;;
    7) what="SIGKILL of the API"; touch api.killed; send KILL "$(pids SHOAL_PART=api)" ;;
    8) what="SIGKILL of two ranks"; send KILL "$(rank_pid 0) $(rank_pid $((1 + RANDOM % 2)))" ;;
    9)
        if [ $place = one ]; then what="SIGKILL of all ranks"; send KILL "$(rank_pid 0) $(rank_pid 1) $(rank_pid 2)"
        else
            rank=$((2 + RANDOM % 2)) what="a cut of the link of host $rank for $time s"
            cut $rank; sleep "$time"; heal $rank
        fi
        ;;
    esac
    faults=$((faults + 1))
    say "$what"
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

say "seed $seed, $seconds s, $place"
$up "$@"
within $((30 * slow)) ready || { say "the server does not start"; cat server.log; exit 1; }
for i in "${!prompts[@]}"; do
    ask "$i" false quiet "$answer_s" && text_of quiet >"want.$i" && [ -s "want.$i" ] || { cat quiet; exit 1; }
done
for i in 1 2 3 4; do client "$i" & clients+=($!); done
RANDOM=$seed failed=0
end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ] && [ $failed = 0 ]; do
    sleep $((RANDOM % 2)).$((RANDOM % 10))
    fault || failed=1
done
touch stop; wait "${clients[@]}"
kill -TERM "$server"; within 20 not kill -0 "$server"; wait "$server"; code=$?
left=$($processes)
exacts=$(cat verdicts.* | grep -c '^exact$') errors=$(cat verdicts.* | grep -c '^error$')
say "$faults faults; $exacts answers exact, $errors ended with an error, $(cat wrong 2>/dev/null | wc -l) wrong"
[ "$code" = 0 ] || { say "the server exited with code $code"; failed=1; }
[ -z "$left" ] || { say "processes left: $left"; failed=1; }
[ ! -e wrong ] && [ "$exacts" -gt 0 ] && [ $failed = 0 ] && ! grep -iE 'assert|sanitizer|runtime error' server.log
