#!/usr/bin/env bash
# Numbers of ranks that come and go by --join, on this machine: rank 0 forgets whom it gave them to when it crashes, and
# still no rank may stay outside.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
case $shoal in *san/*) slow=4 ;; *) slow=1 ;; esac
work=$(mktemp -d /tmp/shoal-numbers-XXXXXX) && cd "$work" || exit 1
declare -A pid
tree() { pgrep -P "${pid[$1]}"; echo "${pid[$1]}"; } # NAME
# shellcheck disable=SC2046 # a word for each process
signal() { kill "-$1" $(tree "$2"); }
end() { # stops what is left, without a word
    local name
    trap - EXIT
    disown -a
    for name in "${!pid[@]}"; do signal KILL "$name" 2>/dev/null; done
    cd / && rm -rf "$work"
}
trap end EXIT
port=$(free_port) meet=$(free_port)
start() { # NAME command...
    local name=$1; shift
    XDG_CACHE_HOME=$work/cache-$name "$shoal" "$@" --model "$root/models/demo" --threads 1 --frozen-after 0 \
        >>"$name.log" 2>&1 &
    pid[$name]=$!
}
comes() { start "$1" worker --join "127.0.0.1:$meet"; }
group() { # SIZE
    curl -s -m 5 "http://127.0.0.1:$port/health" >health
    grep -q "\"world_size\":$1," health && grep -q '"ok":true' health || { cat health; tail -n 5 ./*.log; return 1; }
}
reported() { # the process of rank 0, which the health names once all ranks have reported
    curl -s -m 5 "http://127.0.0.1:$port/health" >health
    engine=$(grep -o '"rank":0,[^}]*' health | grep -o '"pid":[0-9]*' | grep -o '[0-9]*$')
    [ -n "$engine" ]
}
answers() {
    curl -sf -m 30 "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
        -d '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}' | grep -q '"text":"'
}

start server serve --ranks 1 --coordinator "127.0.0.1:$meet" --port "$port" --runtime-dir "$work" --degrade-after -1 \
    --rejoin-after 1
within $((60 * slow)) group 1
comes old
check "a rank joins" within $((60 * slow)) group 2
within $((30 * slow)) reported
signal STOP old
kill -9 "$engine"
within $((60 * slow)) group 1
comes new
taken() { within $((60 * slow)) group 2 && grep -q 'rank 1 has its share' new.log; }
check "rank 0 crashes, and one that joins gets the number of a rank that will be back" taken
signal CONT old
check "that rank gets another number" within $((60 * slow)) group 3
check "and the group answers" answers
kill -STOP "${pid[new]}" # nobody starts its rank again
pkill -KILL -P "${pid[new]}"
absent() { # RANKS
    curl -s -m 5 "http://127.0.0.1:$port/metrics/stream" | head -c 100000 | grep -m 1 -o '"absent":\[[^]]*' |
        grep -o '"rank":[0-9]*' | tr -d '\n' >absent
    [ "$(cat absent)" = "$1" ] || { cat absent; return 1; }
}
check "a rank that is lost is named by its number, and no other" within $((60 * slow)) absent '"rank":1'
end
done_testing
