#!/usr/bin/env bash
# Compares Shoal with another server under the same load. Both run all the time; at each level of concurrency they are
# measured one after the other, so that a machine that slows down affects both.
#   bench/beside.sh MODEL_DIR "COMMAND OF THE OTHER SERVER, listening on port $PORT" [THREADS [LEVELS [ROUNDS]]]
# Prints the CSV of `shoal bench serve` with the name of the server in the first column.
set -eu
cd "$(dirname "$0")/.."
model=$1 other=$2 threads=${3:-2} levels=${4:-1 4 8} rounds=${5:-1}
work=$(mktemp -d); ours=18431; export PORT=18432
# shellcheck disable=SC2086 # several flags
build/shoal serve --model "$model" --threads "$threads" --port $ours --runtime-dir "$work" --slots 32 ${SERVE_FLAGS:-} \
    >"$work/shoal.log" 2>&1 & shoal=$!
eval "exec $other" >"$work/other.log" 2>&1 & rival=$!
trap 'kill $shoal $rival 2>/dev/null; wait; rm -rf "$work"' EXIT
for port in $ours $PORT; do
    for _ in $(seq 600); do curl -sf -o /dev/null http://127.0.0.1:$port/health && break; sleep 0.1; done
done
load() { # PORT LEVEL ROUNDS
    build/shoal bench serve --url http://127.0.0.1:"$1" --concurrency "$2" --prompt 64 --generate 64 --rounds "$3"
}
load $ours 1 1 >/dev/null; load $PORT 1 1 >/dev/null # warm up
echo "server,$(load $ours 1 1 | head -n 1)"
for level in $levels; do
    echo "shoal,$(load $ours "$level" "$rounds" | tail -n 1)"
    echo "other,$(load $PORT "$level" "$rounds" | tail -n 1)"
done
