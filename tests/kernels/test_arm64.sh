#!/usr/bin/env bash
# Builds the kernels and their unit tests for arm64 and runs them under qemu-user, in TAP. The tests run every level
# that the emulated CPU supports, so NEON, dotprod and i8mm are all covered. SHOAL_TEST_ONLY names the tests to run (all
# by default).
set -u
cd "$(dirname "$0")/../.." || exit 1
cc=aarch64-linux-gnu-gcc
qemu=(qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max)
out=build/arm64

for need in "$cc gcc-aarch64-linux-gnu" "qemu-aarch64 qemu-user"; do
    read -r tool package <<<"$need"
    if ! command -v "$tool" >/dev/null; then
        echo "1..1"
        echo "ok 1 - kernels on arm64 # SKIP $tool is not installed (package $package)"
        exit 0
    fi
done

# The Makefile has the flags of each kernel file. Only objects are built, which need no arm64 libraries.
mapfile -t sources < <(find src/base src/kernels -name '*.c' ! -name 'json.c' ! -name 'option*.c' |
    grep -vE '_(avx2|avx512|avx512vnni|avx512bf16)\.c$' | sort)
objects=("${sources[@]/%.c/.o}")
objects=("${objects[@]/#/$out/}")
if ! make -s -j2 VARIANT=arm64 CC=$cc OPT_arm64='-O2 -g' PKG_CFLAGS= PKG_LIBS= "${objects[@]}" >"$out.log" 2>&1; then
    sed 's/^/# /' "$out.log" | tail -n 40
    echo "not ok - kernels build for arm64"
    exit 1
fi

# Emulated floats are slow: the programs run in parallel, and their output is merged afterwards.
build_and_run() { # name
    local bin=$out/$1
    if ! $cc -std=c11 -D_GNU_SOURCE -O2 -g -DIS_EMULATED=1 -Isrc -Itests -Itests/kernels/shim -o "$bin" \
        "tests/unit/kernels/$1.c" "${objects[@]}" -lm -pthread; then
        echo "not ok 1 - builds"
    elif ! "${qemu[@]}" "$bin"; then
        echo "not ok 0 - exits with status 0"
    fi
}
names=()
for source in tests/unit/kernels/test_*.c; do
    name=$(basename "$source" .c)
    [[ -z ${SHOAL_TEST_ONLY:-} || " $SHOAL_TEST_ONLY " == *" $name "* ]] || continue
    names+=("$name")
    build_and_run "$name" >"$out/$name.out" 2>&1 &
    while [ "$(jobs -rp | wc -l)" -ge "$(getconf _NPROCESSORS_ONLN)" ]; do wait -n; done
done
wait

number=0 failed=0
for name in "${names[@]}"; do
    while IFS= read -r line; do
        case $line in
        "ok "*) echo "ok $((++number)) - arm64 $name: ${line#* - }" ;;
        "not ok "*) echo "not ok $((++number)) - arm64 $name: ${line#* - }"; failed=1 ;;
        "1.."*) ;;
        *) echo "# $line" ;;
        esac
    done <"$out/$name.out"
done
echo "1..$number"
exit $failed
