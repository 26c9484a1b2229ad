#!/usr/bin/env bash
# The short version of `make soak`.
. "$(dirname "$0")/../tap.sh"
case $SHOAL_BUILD in *san) part=5 ;; *) part=1 ;; esac # sanitizers are slow
soak() { "$root/tests/soak/soak.sh" "$SHOAL_BUILD" "$(($1 / part))" "${@:2}"; }
check "many requests at once get the answers that each gets alone, on one rank" soak 60 1 1
check "the same on two tensor-parallel ranks" soak 40 2 2
check "the same on two pipeline stages" soak 40 3 2 --parallel pipeline
fixed=(--model "$root/tests/data/models/lfm2-long-4bit")
check "the same with layers whose state has a fixed size" soak 60 4 2 "${fixed[@]}"
check "the same with such layers on two pipeline stages" soak 60 5 2 --parallel pipeline "${fixed[@]}"
done_testing
