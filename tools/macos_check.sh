#!/usr/bin/env bash
# Compiles every source file for macOS on arm64, without linking, to catch Linux-only code.
#   MACOS_CC="zig cc -target aarch64-macos" tools/macos_check.sh
# On a Mac the compiler is cc; elsewhere it is the cross compiler in MACOS_CC, or zig if installed. Library headers are
# taken from this machine; they are the same on all systems.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/macos
mkdir -p $out/include
cc=${MACOS_CC:-}
if [ -z "$cc" ] && [ "$(uname -s)" = Darwin ]; then cc=cc
elif [ -z "$cc" ] && command -v zig >/dev/null; then cc="zig cc -target aarch64-macos"
elif [ -z "$cc" ]; then
    echo "macos-check: skipped: no macOS compiler found; set one, such as MACOS_CC=\"zig cc -target aarch64-macos\""
    exit 0
fi
pkgs="libcjson libpcre2-8 libutf8proc openssl libevent libevent_openssl libcurl libnghttp2 libprotobuf-c yaml-0.1 libedit"
if [ "$(uname -s)" = Darwin ]; then
    # shellcheck disable=SC2086
    flags=$(pkg-config --cflags $pkgs)
else # not all of /usr/include: the system headers there are Linux's
    for dir in /usr/include /usr/include/"$(gcc -dumpmachine 2>/dev/null)"; do
        for part in openssl event2 cjson curl nghttp2 protobuf-c pcre2.h utf8proc.h yaml.h histedit.h; do
            [ -e "$dir/$part" ] && cp -rL "$dir/$part" $out/include/
        done
    done
    flags="-I$out/include"
fi
command -v protoc-c >/dev/null || { echo "macos-check: protoc-c is missing"; exit 1; }
mkdir -p $out/gen/grpc && protoc-c --proto_path=src/grpc --c_out=$out/gen/grpc src/grpc/backend.proto || exit 1
isa_of() { # instruction set flags of a kernel file; zig spells them differently
    case $1:$cc in
    *_dotprod.c:*zig*) echo -mcpu=apple_m1 ;;
    *_i8mm.c:*zig*) echo -mcpu=apple_m2 ;;
    *_dotprod.c:*) echo -march=armv8.2-a+dotprod+fp16 ;;
    *_i8mm.c:*) echo -march=armv8.2-a+dotprod+fp16+i8mm ;;
    esac
}
compile() {
    # shellcheck disable=SC2046,SC2086
    $cc -std=c11 -ffp-contract=off -D_GNU_SOURCE -D_DARWIN_C_SOURCE -Isrc -Iinclude -I$out/gen $flags -Wall -Wextra \
        -Werror \
        -DSH_VERSION='"-"' $(isa_of "$1") -c -o "$out/$(echo "$1" | tr / _).o" "$1" || echo "$1" >>$out/failed
}
export -f compile isa_of
export cc flags out
rm -f $out/failed
# shellcheck disable=SC2086
rdma=$(echo '#include <infiniband/verbs.h>' | $cc $flags -E - >/dev/null 2>&1 && echo plugins/rdma.c) # in newer SDKs
# shellcheck disable=SC2086
find src $rdma -name '*.c' | grep -vE '_avx(2|512[a-z0-9]*)\.c$' |
    xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'compile {}'
[ -e $out/failed ] && { echo "macos-check: failed to compile: $(sort $out/failed | tr '\n' ' ')"; exit 1; }
echo "macos-check: $(find $out -name '*.o' | wc -l | tr -d ' ') files compile for macOS"
