#!/usr/bin/env bash
# Sends random requests to two engines with the same ranks: many at once with too little KV memory, and one at a time.
#   tests/soak/soak.sh BUILD REQUESTS SEED RANKS [FLAGS of the engines...]
set -u
build=$1 requests=$2 seed=$3 ranks=$4; shift 4
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d /tmp/shoal-soak-XXXXXX)
crowd=; alone=
trap 'kill $crowd $alone 2>/dev/null; wait; rm -rf "$work"' EXIT
engine() { # NAME FLAGS...
    local name=$1; shift
    "$build/shoal" engine --model models/demo --socket "$work/$name.sock" --ranks "$ranks" --threads 1 \
        --peer-timeout-ms 20000 --log-level warn "$@" 2>"$work/$name.log" &
}
engine crowd --kv-tokens 512 --slots 12 --chunk 96 --stall-ms 5 "$@"; crowd=$!
engine alone --drafts 0 --slots 1 --kv-tokens 512 "$@"; alone=$!
for _ in $(seq 300); do [ -S "$work/crowd.sock" ] && [ -S "$work/alone.sock" ] && break; sleep 0.1; done
"$build/tests/soak/soak" "$work/crowd.sock" "$work/alone.sock" "$requests" "$seed"; rc=$?
cat "$work"/*.log >&2
exit $rc
