#!/usr/bin/env bash
# Runs the tests of one build variant, each program under a time limit, and sums up what they say in TAP.
#   tests/run.sh build/release [unit|FOLDER ...]
# Unit tests are cmocka programs; every other folder of tests/ has executable scripts test_*.sh or test_*.js that print
# TAP lines ("ok 1 - claim", "not ok ...", "ok 2 - claim # SKIP why"). As many run at once as there are processors
# (SHOAL_TEST_JOBS); a script that measures time says so in a line "# alone: why" and then has the machine to itself.
# Whatever ends first, it is shown and logged in order. There is no second try: a flaky test is a failing test.
# SHOAL_TEST_LIMIT is the limit in seconds; SHOAL_TEST_UNITS, a regular expression, picks unit tests by their folder.
set -u
build=$1; shift
only=${*:-}
cd "$(dirname "$0")/.." || exit 1
export SHOAL_BUILD=$PWD/$build
limit=${SHOAL_TEST_LIMIT:-300} jobs=${SHOAL_TEST_JOBS:-$(getconf _NPROCESSORS_ONLN)}
log=$build/tests.log; : >"$log"
outputs=$(mktemp -d)
passed=0 failed=0 skipped=0
declare -A index_of=() # of the tests that run, by process
trap 'rm -rf "$outputs"' EXIT
trap 'kill "${!index_of[@]}" 2>/dev/null; exit 130' INT TERM

wanted() { [ -z "$only" ] || [[ " $only " == *" $1 "* ]]; }

# report NAME OUTPUT EXIT-CODE SECONDS
report() {
    local name=$1 out=$2 rc=$3 took=$4 ok nok skip
    { echo "=== $name (rc $rc)"; cat "$out"; } >>"$log"
    # cmocka says "not ok N # SKIP" of a skipped test
    skip=$(grep -ciE '^(not )?ok .*# skip' "$out")
    ok=$(grep -E '^ok ' "$out" | grep -vciE '# skip'); nok=$(grep -E '^not ok ' "$out" | grep -vciE '# skip')
    if [ "$rc" != 0 ] && [ "$nok" = 0 ]; then nok=1; fi
    if [ $((ok + nok + skip)) = 0 ]; then nok=1; fi
    passed=$((passed + ok)) failed=$((failed + nok)) skipped=$((skipped + skip))
    if [ "$nok" != 0 ]; then
        printf 'FAIL %-44s %s\n' "$name" "$([ "$rc" = 124 ] && echo "over $limit s")"
        grep -vE '^ok ' "$out" | tail -n 40 | sed 's/^/     | /'
    else
        printf 'ok   %-44s %3d passed %s%s\n' "$name" "$ok" "$([ "$skip" != 0 ] && echo "$skip skipped ")" \
            "$([ "$took" -gt 4 ] && echo "($took s)")"
        grep -iE '^(not )?ok .*# skip' "$out" | sed -E 's/^(not )?ok [0-9]+ *-? */     skipped: /' | head -n 3
    fi
}

# run_all N PROGRAM...: N at once
run_all() {
    local most=$1 programs=("${@:2}") next=0 shown=0 pid rc i began=() took=() codes=()
    while [ $shown -lt ${#programs[@]} ]; do
        while [ $next -lt ${#programs[@]} ] && [ ${#index_of[@]} -lt "$most" ]; do
            : >"$outputs/$next" # and appended to: processes that a test left behind write where it ends
            timeout -k 5 "$limit" "${programs[next]}" >>"$outputs/$next" 2>&1 </dev/null &
            index_of[$!]=$next began[next]=$SECONDS next=$((next + 1))
        done
        wait -n -p pid; rc=$?
        i=${index_of[$pid]}; unset "index_of[$pid]"
        codes[i]=$rc took[i]=$((SECONDS - began[i]))
        while [ -n "${codes[shown]:-}" ]; do
            i=${programs[shown]#"$build/"}
            report "${i#tests/}" "$outputs/$shown" "${codes[shown]}" "${took[shown]}"
            shown=$((shown + 1))
        done
    done
}

if wanted unit; then
    export CMOCKA_MESSAGE_OUTPUT=TAP
    mapfile -t units < <(find "$build/tests/unit" -type f -name 'test_*' ! -name '*.*' |
        grep -E "/unit/(${SHOAL_TEST_UNITS:-.*})/" | sort)
    run_all "$jobs" "${units[@]}"
fi
together=() alone=()
for script in tests/*/test_*.{sh,js}; do
    folder=${script%/*}
    if [ ! -x "$script" ] || ! wanted "${folder#tests/}"; then continue; fi
    if grep -q '^# alone: ' "$script"; then alone+=("$script"); else together+=("$script"); fi
done
if grep -q npm_packages /dev/null "${together[@]}"; then tools/npm.sh; fi # once, whatever becomes of it
run_all $((jobs + 1)) "${together[@]}" # they wait more than they compute
run_all 1 "${alone[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
