#!/usr/bin/env bash
# Installs the missing packages that a build (with "tests": a full test run) needs.
#   tools/setup.sh [tests]
# Uses apt-get on Debian and Ubuntu, Homebrew on macOS. Needs root or sudo only if something is missing.
set -eu

build_debian="gcc make pkg-config libc6-dev libcjson-dev libpcre2-dev libutf8proc-dev libssl-dev libevent-dev
    libcurl4-openssl-dev libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libyaml-dev libedit-dev ca-certificates"
tests_debian="libcmocka-dev clang clang-format libclang-rt-dev cppcheck shellcheck universal-ctags curl iproute2
    openssh-server openssh-client openssl netcat-openbsd procps jq python3"
# Optional: tests that need one of these are skipped if it cannot be installed.
more_debian="libopenmpi-dev openmpi-bin libmpich-dev mpich slurmd slurmctld slurm-client munge gcc-aarch64-linux-gnu
    libc6-dev-arm64-cross qemu-user chromium prometheus libibverbs-dev ibverbs-providers ibverbs-utils rdma-core
    perftest qemu-system-x86 busybox-static cpio zstd xz-utils kmod python3-grpcio protobuf-compiler groff-base systemd
    python3-yaml"
build_brew="make pkg-config cjson pcre2 utf8proc openssl@3 libevent curl libnghttp2 protobuf-c libyaml libedit"
tests_brew="cmocka llvm clang-format cppcheck shellcheck universal-ctags"

wanted=build; [ "${1:-}" = tests ] && wanted=tests

missing_debian() {
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "setup: needs root: $*" >&2; exit 1
    fi
}

install_debian() {
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if command -v apt-get >/dev/null; then
    packages=$build_debian more=
    [ $wanted = tests ] && packages="$packages $tests_debian" more=$more_debian
    [ $wanted = tests ] && ! command -v npm >/dev/null && more="$more nodejs npm"
    # shellcheck disable=SC2086
    missing=$(missing_debian $packages | tr '\n' ' ') missing_more=$(missing_debian $more | tr '\n' ' ')
    [ -z "${missing// /}${missing_more// /}" ] && exit 0
    echo "setup: installing $missing$missing_more"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    [ -z "${missing// /}" ] || install_debian $missing
    # shellcheck disable=SC2086
    if [ -n "${missing_more// /}" ] && ! install_debian $missing_more; then
        for package in $missing_more; do install_debian "$package" || echo "setup: continuing without $package"; done
    fi
elif command -v brew >/dev/null; then
    packages=$build_brew; [ $wanted = tests ] && packages="$packages $tests_brew"
    for package in $packages; do brew list "$package" >/dev/null 2>&1 || brew install "$package"; done
else
    echo "setup: neither apt-get nor brew found; install these by hand: $build_debian" >&2
    for tool in cc make pkg-config; do command -v $tool >/dev/null || exit 1; done
fi
