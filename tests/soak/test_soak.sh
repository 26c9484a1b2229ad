#!/usr/bin/env bash
# The short form of `make soak`.
. "$(dirname "$0")/../tap.sh"
case $SHOAL_BUILD in *san) part=5 ;; *) part=1 ;; esac # sanitizers are slow
soak() { "$root/tests/soak/soak.sh" "$SHOAL_BUILD" "$(($1 / part))" "${@:2}"; }
check "a crowd on one rank gets what each would get alone" soak 60 1 1
check "so it does on two ranks that share every layer" soak 40 2 2
check "and on two stages of a pipeline" soak 40 3 2 --parallel pipeline
done_testing
