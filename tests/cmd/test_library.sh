#!/usr/bin/env bash
# The C library and its examples: what is exported, how it is installed, and `shoal launch -- PROGRAM` on this machine.
# tests/unit/lib has the rest.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal lib=$SHOAL_BUILD/lib examples=$SHOAL_BUILD/examples demo=$root/models/demo
scratch

# --- what there is ---
declared() {
    grep -oE '^SHOAL_API .*\bshoal_[a-z0-9_]+\(' "$root/include/shoal.h" | sed -E 's/.*\b(shoal_.*)\(/\1/' | sort
}
exported() { nm -D --defined-only "$lib/libshoal.so.0" | awk '{print $3}' | sed -n 's/@@SHOAL_0.2$//p' | sort; }
static() { nm -g --defined-only "$lib/libshoal.a" | awk 'NF == 3 && $3 !~ /^__/ {print $3}' | sort; }
others() { nm -D --defined-only "$lib/libshoal.so.0" | grep -vE '@@SHOAL_0.2$| SHOAL_0.2$| __'; }
symbols() { # those that begin with __ are a sanitizer's
    diff <(declared) <(exported) && diff <(declared) <(static) && ! others
}
if command -v nm >/dev/null; then check "exported is what the header declares, with a version" symbols
else skip "exported symbols" "no nm"; fi
soname() { readelf -dW "$lib/libshoal.so" | grep -q 'SONAME.*\[libshoal.so.0\]'; }
if command -v readelf >/dev/null; then check "the shared library has a soname" soname; fi
header() {
    [ "$(wc -l <"$root/include/shoal.h")" -lt 300 ] || { echo "300 lines or more"; return 1; }
    echo '#include <shoal.h>' >h.c && cp h.c h.cc
    cc -std=c99 -Wall -Wextra -pedantic -Werror -I "$root/include" -fsyntax-only h.c || return 1
    ! command -v c++ >/dev/null || c++ -Wall -Wextra -pedantic -Werror -I "$root/include" -fsyntax-only h.cc
}
check "the header is short and compiles by itself, as C99 and as C++" header

# --- programs on all ranks ---
launch() { "$shoal" launch "$@"; }
sums() {
    exits 0 launch --ranks 3 -- "$examples/all_reduce" 100000 || return 1
    local r
    for r in 0 1 2; do grep -qx "\[$r localhost\] rank $r of 3: the sum is 6, the last rank is 2" out || return 1; done
}
check "launch -- PROGRAM starts it on all ranks, and its groups form by themselves" sums
codes() {
    exits 7 launch --ranks 2 -- sh -c 'test $SHOAL_RANK = 0 || exit 7; exec sleep 100' &&
        grep -qx '\[1 localhost\] ended with code 7' err &&
        exits 0 launch --ranks 2 -- sh -c 'test $SHOAL_RANK = 0 || sleep .3; echo $SHOAL_RANK of $SHOAL_RANKS' &&
        gives 2 grep -c 'of 2$' out
}
check "the first failure ends all ranks and is the exit code; a rank that is done leaves the others alone" codes
apart() { # no input that belongs to another, settings as variables, words that are not ours
    exits 0 launch --ranks 2 --op-timeout 9 -- sh -c 'cat; echo "$SHOAL_OP_TIMEOUT $1"' x --ranks </dev/zero &&
        gives 2 grep -cF '] 9 --ranks' out
}
check "ranks have an empty input and the settings of the launch; flags after the program are its own" apart
lonely() {
    exits 1 launch --ranks 2 --join-timeout 1 -- sh -c "test \$SHOAL_RANK = 1 || exec '$examples/all_reduce'" &&
        grep -qE "all_reduce: the group did not form.*missing rank 1" out
}
check "a rank that does not come is missed by name" lonely
wrong() {
    refuses 2 "unexpected argument 'prog'; a program to run comes after" launch prog &&
        refuses 1 "'no-such-program' is not in the PATH" launch -- no-such-program &&
        refuses 1 "cannot run the program ./none: No such file" launch -- ./none &&
        refuses 2 "use one of them" launch --job linktest -- true &&
        refuses 2 "needs a program after" launch --job program && refuses 2 "is for servers" launch --detach -- true &&
        refuses 2 "unknown flag --such" launch -- --such && exits 0 launch -- --print-config --port 81 &&
        grep -qE '^port = 81 ' out
}
check "mistakes are named; a first word with a dash begins more flags of the server" wrong
interrupted() {
    "$shoal" launch --ranks 2 -- sh -c 'echo here; exec sleep 100' >out 2>err & local pid=$!
    within 10 gives 2 grep -c here out; kill -INT $pid; wait $pid
    gives 130 echo $?
}
check "Ctrl-C stops all ranks" interrupted

# --- models ---
answers() {
    exits 0 "$examples/chat" "$demo" Hello && [ -s out ] && grep -qE '^(stop|length) after [0-9]+ tokens' err &&
        exits 0 launch --ranks 2 -- "$examples/chat" "$demo" Hello && grep -q 'after .* tokens; the prompt had' out
}
check "a model answers in the process of the program, and spread over two" answers
facts() {
    exits 0 "$examples/facts" "$demo" "Hello, world" && grep -q '^qwen3, 8 layers' out && grep -q '^fits here' out
}
check "facts of a model" facts
port=$(free_port)
"$shoal" serve --model "$demo" --port "$port" --threads 1 --socket "$work/engine.sock" >serve.out 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait; cd /; rm -rf "$work"' EXIT
up() { within 30 curl -sf "http://127.0.0.1:$port/health"; }
clients() {
    up && exits 0 "$examples/client" "http://127.0.0.1:$port" "Once upon a time" "Hello" || return 1
    gives 2 grep -cE '^\((stop|length), [0-9]+ tokens\)$' out && grep -q '^Once upon a time' out
}
check "two threads ask a running server" clients
by_socket() {
    SHOAL_SOCKET=$work/engine.sock exits 0 "$examples/chat" Hello && grep -qE 'after [0-9]+ tokens' err &&
        SHOAL_URL=http://127.0.0.1:$port exits 0 "$examples/chat" Hello && grep -qE 'after [0-9]+ tokens' err
}
check "a question to the socket of a running engine, and to a server that a variable names" by_socket

# --- installed, and from other languages ---
case $SHOAL_BUILD in
*/release) ;;
*) skip "installation and other languages" "only in the release build"; kill $server; done_testing ;;
esac
usr=$work/usr
installs() { make -s -C "$root" install-lib prefix="$usr" >make.out 2>&1 || { cat make.out; return 1; }; }
check "install-lib" installs
export PKG_CONFIG_PATH=$usr/lib/pkgconfig LD_LIBRARY_PATH=$usr/lib
links() {
    # shellcheck disable=SC2046 # lists of flags
    cc -o facts "$root/examples/facts.c" $(pkg-config --cflags --libs shoal) && exits 0 ./facts "$demo" &&
        cc -o facts-static "$root/examples/facts.c" "$usr/lib/libshoal.a" \
            $(pkg-config --cflags --libs --static shoal | sed 's/-lshoal//') &&
        LD_LIBRARY_PATH='' exits 0 ./facts-static "$demo" && ! ldd facts-static | grep -q libshoal
}
check "an example is built by pkg-config, against the shared library and the static one" links
python() {
    LIBSHOAL=$usr/lib/libshoal.so.0 exits 0 python3 "$root/examples/facts.py" "$demo" Hello &&
        grep -q '^qwen3, 8 layers' out && grep -qE '^\[[0-9, ]+\]$' out && grep -qE '^(stop|length) after' out
}
if command -v python3 >/dev/null; then check "from Python, by ctypes" python
else skip "from Python, by ctypes" "no python3"; fi
golang() {
    cp -r "$root/examples/go" go # Go remembers for a folder what pkg-config said
    (cd go && GOTOOLCHAIN=local GOFLAGS=-mod=mod CGO_ENABLED=1 go build -o "$work/sum" .) &&
        exits 0 launch --ranks 2 -- "$work/sum" && gives 2 grep -c 'the sum is 3$' out
}
if command -v go >/dev/null; then check "from Go, by cgo" golang
else skip "from Go, by cgo" "no go"; fi
kill $server
done_testing
