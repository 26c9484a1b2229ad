#!/usr/bin/env bash
# Installs what is missing and runs all tests; the last line is "N passed, N failed, N skipped".
#   ./test.sh            everything: release, fenced device, lint, asan with ubsan, tsan, fuzz for 1 s per target
#   ./test.sh quick      the release build alone, on the CPU and on the fenced device
# Longer runs are in `make nightly`.
set -u
cd "$(dirname "$0")" || exit 1
. tools/steps.sh
tools/setup.sh tests || exit 1
jobs=$(getconf _NPROCESSORS_ONLN)

export WERROR=1
threads='base|net|coll|engine|cluster|http|api' # the kernels' own tests are pure arithmetic; the engine's run them
sanitizers() {
    make -j"$jobs" VARIANT=asan tests && make -j"$jobs" VARIANT=asan fuzz-build &&
        SHOAL_TEST_UNITS=$threads make -j"$jobs" VARIANT=tsan unit-build
}

step "release: build" make -j"$jobs" tests
step "release: tests that need the machine to themselves" tests/run.sh build/release alone
[ "${1:-}" = quick ] || beside sanitizers
step "release: all other tests" tests/run.sh build/release together
step "fenced device: model and engine tests" make -j"$jobs" fenced
if [ "${1:-}" != quick ]; then
    step "lint" env LINT_CC=none make lint # gcc has built all with warnings as errors, and clang does for asan
    beside_done
    step "asan and ubsan: unit tests" make -j"$jobs" VARIANT=asan tests unit
    step "tsan: unit tests of the layers with threads" \
        env SHOAL_TEST_UNITS="$threads" make -j"$jobs" VARIANT=tsan unit
    step "fuzz: 1 s per target" make -j"$jobs" fuzz FUZZ_SECONDS=1
fi
steps_done
