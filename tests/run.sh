#!/usr/bin/env bash
# Runs the tests of one build variant, each program under a time limit, and sums up what they say in TAP.
#   tests/run.sh build/release [unit|alone|together|FOLDER ...]
# Unit tests are cmocka programs; every other folder of tests/ has executable scripts test_*.sh or test_*.js that print
# TAP lines ("ok 1 - claim", "not ok ...", "ok 2 - claim # SKIP why"). More run at once than there are processors, since
# most wait more than they compute (SHOAL_TEST_JOBS is how many); those of tests/long.txt start first, so that none of
# them is left at the end. A script that measures time says so in a line "# alone: why" and has the machine to itself
# before the others start.
# Whatever ends first, it is shown and logged in the order in which they start. There is no second try: a flaky test is
# a failing test. SHOAL_TEST_LIMIT is the limit in seconds; SHOAL_TEST_UNITS, a regular expression, picks unit tests by
# their folder. Whoever is over the limit gets SIGABRT, says where it is (tests/tap.sh, tests/test.h), and is killed.
set -u
build=$1; shift
only=${*:-}
cd "$(dirname "$0")/.." || exit 1
export SHOAL_BUILD=$PWD/$build
processors=$(getconf _NPROCESSORS_ONLN) limit=${SHOAL_TEST_LIMIT:-500}
case $only in unit) jobs=$((processors + 1)) ;; *) jobs=$((2 * processors + 1)) ;; esac
log=$build/tests.log; : >"$log"
outputs=$(mktemp -d)
passed=0 failed=0 skipped=0
declare -A index_of=() # of the tests that run, by process
trap 'rm -rf "$outputs"' EXIT
trap 'kill "${!index_of[@]}" 2>/dev/null; exit 130' INT TERM
ulimit -c 0

wanted() { [ -z "$only" ] || [[ " $only " == *" $1 "* ]]; }

# report NAME OUTPUT EXIT-CODE SECONDS
report() {
    local name=$1 out=$2 rc=$3 took=$4 ok nok skip
    { echo "=== $name (rc $rc, $took s, CPU $(tail -n 1 "$out.cpu"))"; cat "$out"; } >>"$log"
    # cmocka says "not ok N # SKIP" of a skipped test
    skip=$(grep -ciE '^(not )?ok .*# skip' "$out")
    ok=$(grep -E '^ok ' "$out" | grep -vciE '# skip'); nok=$(grep -E '^not ok ' "$out" | grep -vciE '# skip')
    if [ "$rc" != 0 ] && [ "$nok" = 0 ]; then nok=1; fi
    if [ $((ok + nok + skip)) = 0 ]; then nok=1; fi
    passed=$((passed + ok)) failed=$((failed + nok)) skipped=$((skipped + skip))
    if [ "$nok" != 0 ]; then
        printf 'FAIL %-44s %s\n' "$name" "$([ "$rc" = 124 ] && echo "over $limit s")"
        grep -vE '^ok ' "$out" | tail -n 80 | sed 's/^/     | /'
    else
        printf 'ok   %-44s %3d passed %s%s\n' "$name" "$ok" "$([ "$skip" != 0 ] && echo "$skip skipped ")" \
            "$([ "$took" -gt 4 ] && echo "($took s)")"
        grep -iE '^(not )?ok .*# skip' "$out" | sed -E 's/^(not )?ok [0-9]+ *-? */     skipped: /' | head -n 3
    fi
}

# The processes of a group and all that descend from them.
processes() {
    ps -eo pgid,pid,ppid,stat,etime,args --forest | awk -v group="$1" '
        $1 == group || $3 in ours { ours[$2]; print "#  " substr($0, 1, 150) }'
}

# over_limit GROUP: asks a test where it is, and ends it
over_limit() {
    echo "# over $limit s; its processes:"; processes "$1"
    kill -ABRT -- "-$1"; kill -CONT -- "-$1"
    sleep 10; kill -KILL -- "-$1"
} 2>/dev/null

# limited PROGRAM OUTPUT: runs it in a process group of its own; 124 says that it was over the limit
limited() {
    local test watch rc
    set -m
    "$1" >>"$2" 2>&1 </dev/null & test=$!
    (sleep "$limit"; over_limit $test) >>"$2" & watch=$!
    trap 'kill -TERM -- -$test -$watch 2>/dev/null' TERM
    wait $test 2>/dev/null; rc=$?
    if grep -q "^# over $limit s; its processes:" "$2"; then rc=124; kill -KILL -- "-$test" 2>/dev/null; fi
    kill -KILL -- "-$watch" 2>/dev/null
    times >"$2.cpu"
    return $rc
}

# run_all N PROGRAM...: N at once
run_all() {
    local most=$1 programs=("${@:2}") next=0 shown=0 pid rc i began=() took=() codes=()
    while [ $shown -lt ${#programs[@]} ]; do
        while [ $next -lt ${#programs[@]} ] && [ ${#index_of[@]} -lt "$most" ]; do
            : >"$outputs/$next" # and appended to: processes that a test left behind write where it ends
            limited "${programs[next]}" "$outputs/$next" &
            index_of[$!]=$next began[next]=$SECONDS next=$((next + 1))
        done
        wait -n -p pid "${!index_of[@]}"; rc=$?
        i=${index_of[$pid]}; unset "index_of[$pid]"
        codes[i]=$rc took[i]=$((SECONDS - began[i]))
        while [ -n "${codes[shown]:-}" ]; do
            i=${programs[shown]#"$build/"}
            report "${i#tests/}" "$outputs/$shown" "${codes[shown]}" "${took[shown]}"
            shown=$((shown + 1))
        done
    done
}

# Reads names, writes those of tests/long.txt first, in its order, then the others.
long_first() {
    awk -v build="$build/" 'FILENAME != "-" { place[$1] = FNR; next }
        { name = $0; sub(build, "", name); sub("tests/", "", name)
            print (name in place ? place[name] : 9999) "\t" $0 }' \
        tests/long.txt - | sort -s -n -k 1,1 | cut -f 2
}

# The npm packages come meanwhile; who needs them waits for the lock.
get_npm_packages() {
    local lock
    mkdir -p build/npm
    exec {lock}>build/npm/.lock; flock "$lock"
    tools/npm.sh &
    exec {lock}>&-
}

names=() alone=()
if wanted unit || wanted together; then
    export CMOCKA_MESSAGE_OUTPUT=TAP
    mapfile -t names < <(find "$build/tests/unit" -type f -name 'test_*' ! -name '*.*' |
        grep -E "/unit/(${SHOAL_TEST_UNITS:-.*})/" | sort)
fi
for script in tests/*/test_*.{sh,js}; do
    [ -x "$script" ] || continue
    folder=${script%/*}
    if grep -q '^# alone: ' "$script"; then kind=alone; else kind=together; fi
    wanted "${folder#tests/}" || wanted $kind || continue
    if [ $kind = alone ]; then alone+=("$script"); else names+=("$script"); fi
done
mapfile -t names < <(for name in "${names[@]}"; do echo "$name"; done | long_first)
if grep -q npm_packages /dev/null "${names[@]}"; then get_npm_packages; fi
run_all 1 "${alone[@]}"
run_all "${SHOAL_TEST_JOBS:-$jobs}" "${names[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
