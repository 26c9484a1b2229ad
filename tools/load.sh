#!/usr/bin/env bash
# Measures the API in front of an engine that computes nothing: requests per second, open streams, CPU time per token,
# time to first token, memory over 100,000 requests. `make load` runs it. Needs node, and wrk for the first figure.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
work=$(mktemp -d); port=18417
trap 'kill $api $engine 2>/dev/null; wait; rm -rf "$work"' EXIT
"$build/bench/fake_engine" "$work/engine.sock" models/demo 125 8 & engine=$!
"$build/shoal" api --socket "$work/engine.sock" --port $port 2>"$work/api.log" & api=$!
url=http://127.0.0.1:$port
for _ in $(seq 100); do curl -sf -o /dev/null $url/health/ready && break; sleep 0.1; done

if command -v wrk >/dev/null; then
    for path in /health/live /health; do
        before=$(awk '{print $14 + $15}' /proc/$api/stat)
        said=$(wrk -t1 -c64 -d5s $url$path)
        used=$(($(awk '{print $14 + $15}' /proc/$api/stat) - before))
        awk -v used=$used -v path=$path '/requests in/ {n = $1} /Requests\/sec/ {r = $2} END {
            printf "%s: %.0f requests/s, %.0f per CPU second of the API\n", path, r, n / (used / 100)
        }' <<<"$said"
    done
else
    echo "wrk is missing: requests per second not measured"
fi
node bench/api_load.mjs $url $api first 200
node bench/api_load.mjs $url $api streams 1000
sleep 1
node bench/api_load.mjs $url $api flood "${LOAD_REQUESTS:-100000}"
