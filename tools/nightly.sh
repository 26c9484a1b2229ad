#!/usr/bin/env bash
# What takes longer than ./test.sh may: everything under the sanitizers, scripts too, then soak, chaos and fuzz for a
# long time. Hours; `make nightly` runs it. The results, with date and commit, are added to build/nightly.log.
#   NIGHTLY_SECONDS     of chaos, and of fuzz for each target (600)
#   NIGHTLY_SEED        of soak and chaos (the day)
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/steps.sh
tools/setup.sh tests || exit 1
jobs=$(getconf _NPROCESSORS_ONLN) seconds=${NIGHTLY_SECONDS:-600} seed=${NIGHTLY_SEED:-$(date +%Y%m%d)}
export SHOAL_TEST_LIMIT=1800 # sanitizers are slow

echo "seed $seed"
step "release: build and all tests" make -j"$jobs" WERROR=1 check
step "lint" make lint
step "asan and ubsan: all tests" make -j"$jobs" asan
step "tsan: all tests" make -j"$jobs" tsan
step "soak" make -j"$jobs" soak SOAK_SEED="$seed"
step "chaos" make -j"$jobs" chaos CHAOS_SECONDS="$seconds" CHAOS_SEED="$seed"
step "chaos under asan" make -j"$jobs" VARIANT=asan chaos CHAOS_SECONDS="$seconds" CHAOS_SEED="$seed"
step "fuzz: $seconds s a target" make -j"$jobs" fuzz FUZZ_SECONDS="$seconds"
echo "$(date -u +%FT%TZ) $(git rev-parse --short HEAD 2>/dev/null) seed $seed: $(steps_done)" | tee -a build/nightly.log
[ "$failed" = 0 ]
