# Runs steps and sums up their test counts. Source this, call `step "name" command...` for each, then `steps_done`.
# `beside command...` runs one with the time that the processors have left, until `beside_done`.
passed=0 failed=0 skipped=0 beside=

# Runs a step, shows its output and how long it took, and adds its final count to the sum. A step without a count is one
# test.
step() {
    local name=$1 log rc start=$SECONDS counts; shift
    log=$(mktemp)
    echo "== $name"
    "$@" 2>&1 | tee "$log" | grep --line-buffered -vE '^(CC|LD) |^make|[0-9]+ passed, [0-9]+ failed'
    rc=${PIPESTATUS[0]}
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    if [ -n "$counts" ]; then
        read -r ok _ nok _ skip _ <<<"$counts"
        [ "$rc" = 0 ] || [ "$nok" != 0 ] || nok=1
        passed=$((passed + ok)) failed=$((failed + nok)) skipped=$((skipped + skip))
    elif [ "$rc" = 0 ]; then passed=$((passed + 1))
    else failed=$((failed + 1)); echo "FAILED: $name"
    fi
    echo "-- $name: $((SECONDS - start)) s"
    rm -f "$log"
}

beside() {
    set -m # a process group of its own, not a session: the kernel may share out time by sessions
    { chrt --idle -p 0 $BASHPID || renice -n 19 $BASHPID; "$@"; } >build/beside.log 2>&1 &
    beside=$!
    set +m
    trap beside_done EXIT
}
beside_done() {
    [ -z "$beside" ] || { kill -TERM -- "-$beside"; wait "$beside"; } 2>/dev/null
    beside=
}

steps_done() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
