# Helpers for shell tests: source this, then
#   check "claim" command args...   one test, in a subshell; what it says is shown when it fails
#   skip "claim" "why"              says aloud what was not tested
#   done_testing                    prints the plan; exits 1 when a test failed
#   scratch                         goes into a folder of its own, $work, which is gone in the end
# In claims:
#   exits N command...              the exit code is N; output in ./out, ./err
#   refuses N PATTERN command...    so it is, and stderr matches the extended regular expression
#   prints PATTERN command...       the output matches
#   gives TEXT command...           the output is that text
#   not command...                  it fails
#   within SECONDS command...       it succeeds before long: tried until it does, for 30 s at least, since a loaded
#                                   machine is no reason to fail
#   crowd                           how many times as long it may take here: processes to run for each processor
#   free_port                       a port of this machine that nobody listens on
#   npm_packages                    those of tests/npm are in build/npm; if not, says why
# shellcheck disable=SC2034 # of those who source this
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tests=0 failures=0
export LC_ALL=C.UTF-8

# SIGABRT says that the time is over (tests/run.sh). Tells in which command this shell is, and who called that; the
# outer shell then shows what the claim has said, and how the logs end.
tell_where() {
    local i last=$((${#FUNCNAME[@]} - 1)) file
    echo "# over its time${claim:+ in \"$claim\"}: $1"
    for ((i = 1; i < last; i++)); do
        echo "#   in ${FUNCNAME[i]}, called in line ${BASH_LINENO[i]} of ${BASH_SOURCE[i + 1]##*/}"
    done
    [ "$BASH_SUBSHELL" = 0 ] || exit 1
    tail -n 20 <<<"${said:-}" | sed 's/^/#   /'
    for file in *.log *.out *.err out err; do
        [ ! -s "$file" ] || { echo "# $file:"; tail -n 5 "$file" | sed 's/^/#   /'; }
    done
    exit 1
}
trap 'tell_where "$BASH_COMMAND"' ABRT

check() {
    tests=$((tests + 1))
    local claim=$1 said; shift
    if said=$(trap 'tell_where "$BASH_COMMAND"' ABRT; "$@" 2>&1); then echo "ok $tests - $claim"; return; fi
    failures=$((failures + 1))
    echo "not ok $tests - $claim"
    { tail -n 10 <<<"$said"; [ -s err ] && tail -n 12 err; } | sed 's/^/# /'
}
skip() { tests=$((tests + 1)); echo "ok $tests - $1 # SKIP $2"; }
scratch() {
    work=$(mktemp -d) && cd "$work" || exit 1
    trap 'cd /; rm -rf "$work"' EXIT
}
done_testing() { echo "1..$tests"; [ $failures = 0 ]; exit; }

exits() {
    local want=$1 got; shift
    "$@" >out 2>err </dev/null; got=$?
    [ $got = "$want" ] || { echo "exit code $got, not $want, of: $*"; tail -n 5 out; return 1; }
}
refuses() {
    local pattern=$2
    exits "$1" "${@:3}" || return 1
    grep -qE -- "$pattern" err || { echo "no '$pattern' in the errors"; return 1; }
}
prints() {
    local pattern=$1 text; shift
    text=$("$@")
    grep -qE -- "$pattern" <<<"$text" || { echo "no '$pattern' in:"; echo "$text"; return 1; }
}
gives() {
    local want=$1 text; shift
    text=$("$@")
    [ "$text" = "$want" ] || { echo "'$text', not '$want'"; return 1; }
}
not() { ! "$@"; }
within() {
    local end=$((SECONDS + ($1 > 30 ? $1 : 30))); shift
    until "$@" >within.out 2>&1; do
        [ $SECONDS -lt $end ] || { cat within.out; return 1; }
        sleep .05
    done
}
crowd() {
    awk -v cores="$(getconf _NPROCESSORS_ONLN)" '{ most = $1 > $4 + 0 ? $1 : $4 + 0; times = int(most / cores + 0.99)
        print (times > 1 ? times : 1) }' /proc/loadavg 2>/dev/null || echo 1
}
npm_packages() { # tests/run.sh has started tools/npm.sh
    flock -s -w 250 "$root/build/npm/.lock" true
    [ -e "$root/build/npm/.done" ] || { cat "$root/build/npm/.why" 2>/dev/null || echo "run tools/npm.sh"; return 1; }
}
free_port() { # below the ports that the system gives to clients
    local port
    while port=$((20000 + RANDOM % 12000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}
