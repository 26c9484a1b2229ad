#!/usr/bin/env bash
# Random answers under random schemas, judged by another implementation: Ajv from npm. SHOAL_GRAMMAR_SCHEMAS and
# SHOAL_GRAMMAR_SEED change how many there are, and which.
. "$(dirname "$0")/../tap.sh"
cd "$root" || exit 1
tool=$SHOAL_BUILD/tests/text/grammar_tool
work=build/npm
claim="every answer is valid for Ajv"
if why=$(npm_packages); then cp tests/npm/grammar_oracle.mjs "$work/"; fi

all_valid() {
    (cd "$work" && node grammar_oracle.mjs make "${SHOAL_GRAMMAR_SCHEMAS:-600}" "${SHOAL_GRAMMAR_SEED:-7}") \
        >"$work/grammar.requests" &&
        "$tool" <"$work/grammar.requests" >"$work/grammar.answers" &&
        (cd "$work" && node grammar_oracle.mjs judge grammar.requests grammar.answers)
}

if [ -n "$why" ]; then skip "$claim" "$why"; else check "$claim" all_valid; fi
done_testing
