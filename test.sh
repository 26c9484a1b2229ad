#!/usr/bin/env bash
# Sets up and runs all tests; the last line is "N passed, N failed, N skipped".
#   ./test.sh            everything: lint, release, asan with ubsan, tsan, fuzz for 6 s a target
#   ./test.sh quick      the release build alone
set -u
cd "$(dirname "$0")" || exit 1
tools/setup.sh tests || exit 1
jobs=$(getconf _NPROCESSORS_ONLN)
passed=0 failed=0 skipped=0

# Runs a step, shows what it says, and adds its closing count to the sum; a step without a count is one test.
step() {
    local name=$1 log rc; shift
    log=$(mktemp)
    echo "== $name"
    "$@" 2>&1 | tee "$log" | grep -vE '^(CC|LD) |^make|[0-9]+ passed, [0-9]+ failed'
    rc=${PIPESTATUS[0]}
    local counts; counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    if [ -n "$counts" ]; then
        # shellcheck disable=SC2086
        set -- $counts
        passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5))
        [ "$rc" != 0 ] && [ "$3" = 0 ] && failed=$((failed + 1))
    elif [ "$rc" = 0 ]; then passed=$((passed + 1))
    else failed=$((failed + 1)); echo "FAILED: $name"
    fi
    rm -f "$log"
}

step "release: build and all tests" make -j"$jobs" WERROR=1 check
if [ "${1:-}" != quick ]; then
    step "lint" env LINT_CC=clang make lint # gcc's warnings were errors in the step above
    step "asan and ubsan: unit tests" make -j"$jobs" VARIANT=asan unit
    # The kernels' own tests are arithmetic; the engine's run them on several threads.
    step "tsan: unit tests of the layers with threads" \
        env SHOAL_TEST_UNITS='base|net|coll|engine|cluster|http|api' make -j"$jobs" VARIANT=tsan unit
    step "fuzz: 6 s a target" make -j"$jobs" fuzz FUZZ_SECONDS=6
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
