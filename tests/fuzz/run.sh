#!/usr/bin/env bash
# Runs every fuzz target for the given number of seconds, as many at once as there are processors; findings are kept in
# build/fuzz/ and listed.
#   tests/fuzz/run.sh SECONDS
set -u
cd "$(dirname "$0")/../.." || exit 1
seconds=$1 passed=0 failed=0 names=()

fuzz() { # NAME: output goes to its log, the exit code to its .rc
    local work=build/fuzz/work-$1 corpus=tests/fuzz/corpus/$1
    mkdir -p "$work" "$corpus"
    timeout -k 5 $((seconds + 60)) "build/fuzz/fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -close_fd_mask=1 -artifact_prefix="build/fuzz/$1-" "$work" "$corpus" >"build/fuzz/$1.log" 2>&1
    echo $? >"build/fuzz/$1.rc"
}

for target in build/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] && [[ $target != *.* ]] || continue
    name=${target#build/fuzz/fuzz_}; names+=("$name")
    rm -f "build/fuzz/$name.rc"
    fuzz "$name" &
    while [ "$(jobs -rp | wc -l)" -ge "$(getconf _NPROCESSORS_ONLN)" ]; do wait -n; done
done
wait
for name in "${names[@]}"; do
    log=build/fuzz/$name.log
    if [ "$(cat "build/fuzz/$name.rc")" = 0 ]; then
        passed=$((passed + 1))
        printf 'ok   fuzz/%-20s %s\n' "$name" "$(grep -E '^Done|DONE' "$log" | tail -n 1)"
    else
        failed=$((failed + 1))
        printf 'FAIL fuzz/%s\n' "$name"; tail -n 30 "$log" | sed 's/^/     | /'
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed != 0 ]
