#!/usr/bin/env bash
# Ranks that stay away, come back, are added and leave, one process each: the group goes on, and so do answers.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d /tmp/shoal-elastic-XXXXXX) && cd "$work" || exit 1
trap 'kill -9 $serve_pid ${pid[@]} 2>/dev/null; rm -rf "$work"' EXIT
unset "${!SHOAL_@}"
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
port=$(free_port) meet=127.0.0.1:$(free_port) pid=()
export SHOAL_TOKEN; SHOAL_TOKEN=$("$shoal" token)
serve() { # FLAGS...
    (cd "$root" && exec "$shoal" serve --rank 0 --coordinator "$meet" --port "$port" --runtime-dir "$work" \
        --threads 1 --degrade-after 1 --rejoin-after 1 "$@") >>serve.log 2>&1 &
    serve_pid=$!
}
rank() { # NUMBER FLAGS...: a worker, whose log is rank.NUMBER
    local number=$1; shift
    (cd "$root" && exec "$shoal" worker --model models/demo --threads 1 "$@") >>"rank.$number" 2>&1 &
    pid[number]=$!
}
# NUMBER: the rank and its supervisor, without a word. A rank whose supervisor dies first would say that it leaves.
vanish() { kill -9 "$(pgrep -P "${pid[$1]}")" "${pid[$1]}"; }
started() { rank "$1" --rank "$1" --ranks 3 --coordinator "$meet"; }
health() { curl -s -m 5 "http://127.0.0.1:$port/health" >health; }
# group SIZE MISSING: how many ranks there are, and the list of those that are missing
group() { health && has health "\"world_size\":$1," && has health "\"missing\":[$2]" && has health '"ok":true'; }
answer() { # FILE [PROMPT]
    curl -s -m $((60 * slow)) "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
        -d "{\"prompt\":\"${2:-Once upon}\",\"max_tokens\":60,\"temperature\":0}" | grep -o '"text":"[^"]*"' >"$1"
}
has() { grep -qF -- "$2" "$1" || { tail -c 2000 "$1"; return 1; }; } # FILE TEXT
same() { answer got && cmp want got; }

serve --ranks 3 --model models/demo; started 1; started 2
check "three ranks serve" within $((20 * slow)) group 3 ''
answer want; [ -s want ] || exit 1
# A stream of answers that must all be the same, whatever happens to the ranks. Few enough tokens that other shares
# round to the same ones.
: >answers; (while [ ! -e stop ]; do answer one; cat one >>answers; done) & asker=$!
vanish 1
check "the group goes on without a rank that stays away" within $((15 * slow)) group 2 1
degraded() { health && has health '"status":"degraded","api"' && has health '"degraded":true'; }
check "and says so in /health" degraded
metric() { curl -s "http://127.0.0.1:$port/metrics" >metrics && has metrics "$1"; }
check "and in metrics" metric 'shoal_engine_missing_ranks{model="demo"} 1'
started 1
check "the rank is taken in again when it is back" within $((15 * slow)) group 3 ''
rank 3 --join "$meet"
check "a rank is added by its address alone, under load" within $((15 * slow)) group 4 ''
check "it has the next number" within 5 has rank.3 '[rank 3] ready'
kill -TERM "${pid[2]}"
check "a rank that is asked to stop leaves, and is not missed" within $((15 * slow)) group 3 ''
left() { wait "${pid[2]}"; }
check "it exits with 0" left
vanish 3; rank 3 --join "$meet" --rank 3
check "an added rank that was killed has its place again" within $((15 * slow)) group 3 ''
kill -9 "$(pgrep -P $serve_pid -f engine || pgrep -P $serve_pid | head -n 1)"
check "rank 0 that starts anew finds those who are there, without the one that left" within $((20 * slow)) group 3 ''
touch stop; wait $asker
all_same() { [ "$(sort -u answers)" = "$(cat want)" ] || { sort answers | uniq -c; return 1; }; }
check "all $(wc -l <answers) answers were the same" all_same

wrong() { ! timeout 20 "$shoal" worker --model "$root/models/demo" --join "$meet" --wire bf16 "$@" >out 2>&1; }
check "--join with a hostfile or a size is refused" eval 'wrong --ranks 2 && has out "--join and --ranks"'
SHOAL_TOKEN=$("$shoal" token) rank 9 --join "$meet" --join-timeout 1
check "a rank with another token stays outside" within 10 has rank.9 'tokens of the two ends differ'
kill -9 "${pid[9]}" 2>/dev/null
check "and the group is as it was" same
kill -TERM $serve_pid "${pid[1]}" "${pid[3]}"
ended() { not kill -0 $serve_pid && not kill -0 "${pid[1]}" && not kill -0 "${pid[3]}"; }
check "all end together" within 20 ended

serve --ranks 1 --model models/demo
check "a server that is alone" within $((20 * slow)) group 1 ''
rank 1 --join "$meet"; rank 2 --join "$meet" --wire bf16 --slots 3
check "gets company at its address" within $((15 * slow)) group 3 ''
check "and answers the same, since rank 0's options count" same
kill -TERM "${pid[1]}" "${pid[2]}"
check "two that leave at once are not missed" within $((15 * slow)) group 1 ''
rank 1 --join "$meet" --rank 1
check "one may come back" within $((15 * slow)) group 2 ''
vanish 1
check "and is alone again when that is lost" within $((15 * slow)) group 1 1
check "with the same answers" same
kill -TERM $serve_pid
done_testing
