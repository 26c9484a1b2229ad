#!/usr/bin/env bash
# Runs the tests of one build variant, each program under a time limit, and sums up what they say in TAP.
#   tests/run.sh build/release [unit|FOLDER ...]
# Unit tests are cmocka programs; every other folder of tests/ has executable scripts test_*.sh or test_*.js that
# print TAP lines ("ok 1 - claim", "not ok ...", "ok 2 - claim # SKIP why"). SHOAL_TEST_LIMIT is the limit in seconds;
# SHOAL_TEST_UNITS, a regular expression, picks unit tests by their folder.
set -u
build=$1; shift
only=${*:-}
cd "$(dirname "$0")/.." || exit 1
export SHOAL_BUILD=$PWD/$build
limit=${SHOAL_TEST_LIMIT:-300}
log=$build/tests.log; : >"$log"
passed=0 failed=0 skipped=0

wanted() { [ -z "$only" ] || [[ " $only " == *" $1 "* ]]; }

# Runs a test and counts into ok, nok and skip. There is no second try: a flaky test is a failing test.
try() { # name, command...
    local name=$1; shift
    : >"$out" # and appended to: processes that a test left behind write where it ends
    timeout -k 5 "$limit" "$@" >>"$out" 2>&1 </dev/null; rc=$?
    { echo "=== $name (rc $rc)"; cat "$out"; } >>"$log"
    # cmocka says "not ok N # SKIP" of a skipped test
    skip=$(grep -ciE '^(not )?ok .*# skip' "$out")
    ok=$(grep -E '^ok ' "$out" | grep -vciE '# skip'); nok=$(grep -E '^not ok ' "$out" | grep -vciE '# skip')
    if [ "$rc" != 0 ] && [ "$nok" = 0 ]; then nok=1; fi
    if [ $((ok + nok + skip)) = 0 ]; then nok=1; fi
}

run_one() { # name, command...
    local name=$1 out=$build/last-test.out start=$SECONDS rc ok nok skip; shift
    try "$name" "$@"
    passed=$((passed + ok)) failed=$((failed + nok)) skipped=$((skipped + skip))
    if [ "$nok" != 0 ]; then
        printf 'FAIL %-44s %s\n' "$name" "$([ "$rc" = 124 ] && echo "over $limit s")"
        grep -vE '^ok ' "$out" | tail -n 40 | sed 's/^/     | /'
    else
        printf 'ok   %-44s %3d passed %s%s\n' "$name" "$ok" "$([ "$skip" != 0 ] && echo "$skip skipped ")" \
            "$([ $((SECONDS - start)) -gt 4 ] && echo "($((SECONDS - start)) s)")"
        grep -iE '^(not )?ok .*# skip' "$out" | sed -E 's/^(not )?ok [0-9]+ *-? */     skipped: /' | head -n 3
    fi
}

if wanted unit; then
    export CMOCKA_MESSAGE_OUTPUT=TAP
    units=$(cd "$build/tests/unit" && find . -type f -name 'test_*' ! -name '*.*' | sed 's/^\.\///' | sort)
    for bin in $(grep -E "^(${SHOAL_TEST_UNITS:-.*})/" <<<"$units"); do
        run_one "unit/$bin" "$build/tests/unit/$bin"
    done
fi
for dir in tests/*/; do
    name=$(basename "$dir")
    case $name in unit | data) continue ;; esac
    wanted "$name" || continue
    for script in "$dir"test_*; do
        [ -x "$script" ] && run_one "$name/$(basename "$script")" "$script"
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
