#!/usr/bin/env bash
# Installs what is missing and runs all tests; the last line is "N passed, N failed, N skipped".
#   ./test.sh            everything: release, fenced device, lint, asan with ubsan, tsan, fuzz for 2 s per target
#   ./test.sh quick      the release build alone, on the CPU and on the fenced device
# Longer runs are in `make nightly`.
set -u
cd "$(dirname "$0")" || exit 1
. tools/steps.sh
tools/setup.sh tests || exit 1
jobs=$(getconf _NPROCESSORS_ONLN)

step "release: build and all tests" make -j"$jobs" WERROR=1 check
step "fenced device: model and engine tests" make -j"$jobs" fenced
if [ "${1:-}" != quick ]; then
    step "lint" env LINT_CC=clang make lint # the step above has already treated gcc's warnings as errors
    step "asan and ubsan: unit tests" make -j"$jobs" VARIANT=asan unit
    # The kernels' own tests are pure arithmetic; the engine's tests run the kernels on several threads.
    step "tsan: unit tests of the layers with threads" \
        env SHOAL_TEST_UNITS='base|net|coll|engine|cluster|http|api' make -j"$jobs" VARIANT=tsan unit
    step "fuzz: 2 s per target" make -j"$jobs" fuzz FUZZ_SECONDS=2
fi
steps_done
