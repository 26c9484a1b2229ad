#!/usr/bin/env bash
# Runs the commands of README.md and docs/install.md: the code blocks whose first line is
#   ```sh run           commands that end, with success
#   ```sh run server    a server at http://127.0.0.1:8100, which runs until the next such block or the end of the page
# in order, in the checkout, with a network, processes and a /usr/local of their own.
. "$(dirname "$0")/../tap.sh"
case $SHOAL_BUILD in *release) ;; *) skip "the commands of the pages" "not a release build"; done_testing ;; esac
private=(unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private)
prepare='ip link set lo up && mount -t tmpfs local /usr/local && exec "$@"'
if [ -z "${TEST_PRIVATE:-}" ]; then
    if ! why=$("${private[@]}" sh -c "$prepare" sh true 2>&1); then
        skip "the commands of the pages" "no namespaces here: $(tail -n 1 <<<"$why")"; done_testing
    fi
    TEST_PRIVATE=1 exec "${private[@]}" sh -c "$prepare" sh "$0"
fi
scratch
mkdir bin && printf '#!/bin/sh\nexec "$@"\n' >bin/sudo && chmod +x bin/sudo
export PATH=$work/bin:/usr/local/bin:$PATH STAGE=$work/stage
unset TEST_PRIVATE MAKEFLAGS MFLAGS MAKELEVEL # the last three are of the make that runs the tests

# Writes the blocks of a page to 1.run, 2.server, ...
blocks() {
    awk '/^```sh run/ {file = ++n "." ($3 == "" ? "run" : $3); next} /^```/ {file = ""} file {print > file}' "$1"
}
run() {
    (cd "$root" && exec bash -eu "$work/$1") >out 2>&1 </dev/null || { cat out; return 1; }
    ! grep -q '"error"' out || { cat out; return 1; }
}
ready() { curl -fs -m 2 http://127.0.0.1:8100/health/ready; }
start() {
    within 120 ready || { cat server.log; return 1; }
}
stop() {
    [ -z "${server:-}" ] || { kill -TERM -- "-$server"; wait "$server"; } 2>/dev/null
    server=
}
for page in README.md docs/install.md; do
    rm -f ./*.run ./*.server
    blocks "$root/$page"
    check "$page has commands to run" ls 1.*
    for block in $(find . -name '[0-9]*.*' | sort -V); do
        name="$page: $(sed '1s/ *#.*//; q' "$block")"
        case $block in
        *.run) check "$name" run "${block#./}" ;;
        *.server)
            stop
            (cd "$root" && exec setsid bash -eu "$work/$block") >server.log 2>&1 </dev/null & server=$!
            check "$name" start ;;
        esac
    done
    stop
done
done_testing
