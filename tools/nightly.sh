#!/usr/bin/env bash
# Tests that are too long for ./test.sh: everything under the sanitizers, including the shell tests, then long runs of
# soak, chaos and fuzz. Takes hours; `make nightly` runs it. Appends the results, with date and commit, to
# build/nightly.log.
#   NIGHTLY_SECONDS     duration of each chaos run and of each fuzz target (default 600)
#   NIGHTLY_SEED        seed of soak and chaos (default: the date)
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/steps.sh
tools/setup.sh tests || exit 1
jobs=$(getconf _NPROCESSORS_ONLN) seconds=${NIGHTLY_SECONDS:-600} seed=${NIGHTLY_SEED:-$(date +%Y%m%d)}
export SHOAL_TEST_LIMIT=1800 # sanitizers are slow

echo "seed $seed"
step "release: build and all tests" make -j"$jobs" WERROR=1 check
step "fenced device: every answer" env SHOAL_TEST_FULL=1 make -j"$jobs" fenced
step "lint" make lint
step "asan and ubsan: all tests" env SHOAL_TEST_FULL=1 make -j"$jobs" asan
rm -f build/tsan/src/kernels/cpu/dot*.o # ./test.sh builds them without tsan
step "tsan: all tests" env SHOAL_TEST_FULL=1 make -j"$jobs" tsan
step "grammars: many random schemas" env SHOAL_BUILD="$PWD/build/release" SHOAL_GRAMMAR_SCHEMAS=6000 \
    SHOAL_GRAMMAR_SEED="$seed" tests/text/test_grammar_npm.sh
step "soak" make -j"$jobs" soak SOAK_SEED="$seed"
step "chaos" make -j"$jobs" chaos CHAOS_FAULTS="$((seconds / 4))" CHAOS_SEED="$seed"
step "chaos under asan" make -j"$jobs" VARIANT=asan chaos CHAOS_FAULTS="$((seconds / 4))" CHAOS_SEED="$seed"
step "fuzz: $seconds s per target" make -j"$jobs" fuzz FUZZ_SECONDS="$seconds"
echo "$(date -u +%FT%TZ) $(git rev-parse --short HEAD 2>/dev/null) seed $seed: $(steps_done)" | tee -a build/nightly.log
[ "$failed" = 0 ]
