#!/usr/bin/env bash
# Runs every fuzz target for the given number of seconds; a find is left in build/fuzz/ and named.
#   tests/fuzz/run.sh SECONDS
set -u
cd "$(dirname "$0")/../.." || exit 1
seconds=$1 passed=0 failed=0
for target in build/fuzz/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    case $target in *.*) continue ;; esac
    name=$(basename "$target"); name=${name#fuzz_}
    work=build/fuzz/work-$name; mkdir -p "$work" "tests/fuzz/corpus/$name"
    log=build/fuzz/$name.log
    if timeout -k 5 $((seconds + 60)) "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -close_fd_mask=1 -artifact_prefix="build/fuzz/$name-" "$work" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok   fuzz/%-20s %s\n' "$name" "$(grep -E '^Done|DONE' "$log" | tail -n 1)"
    else
        failed=$((failed + 1))
        printf 'FAIL fuzz/%s\n' "$name"; tail -n 30 "$log" | sed 's/^/     | /'
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
