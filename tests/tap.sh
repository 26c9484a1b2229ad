# Helpers for shell tests: source this, then
#   check "claim" 'command'         one test; the command's stderr and stdout are shown when it fails
#   skip "claim" "why"              says aloud what was not tested
#   exits N command...              the exit code is N; output in ./out, ./err
#   done_testing                    prints the plan; exits 1 when a test failed
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tests=0 failures=0
export LC_ALL=C.UTF-8

check() {
    tests=$((tests + 1))
    local said
    if said=$(eval "$2" 2>&1); then echo "ok $tests - $1"
    else failures=$((failures + 1)); echo "not ok $tests - $1"; printf '%s\n' "$said" "$([ -s err ] && cat err)" | tail -n 15 | sed 's/^/# /'; fi
}
skip() { tests=$((tests + 1)); echo "ok $tests - $1 # SKIP $2"; }
exits() {
    local want=$1 got; shift
    "$@" >out 2>err </dev/null; got=$?
    [ $got = "$want" ] || { echo "exit code $got, not $want"; return 1; }
}
done_testing() { echo "1..$tests"; [ $failures = 0 ]; exit; }
