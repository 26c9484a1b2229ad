#!/usr/bin/env bash
# How the program, its plugins and the library are built and linked, according to their ELF files.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d) && cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
case $SHOAL_BUILD in *release) ;; *) skip "hardening" "not a release build"; done_testing ;; esac
if ! command -v readelf >/dev/null || ! readelf -h "$shoal" >/dev/null 2>&1; then
    skip "hardening" "no readelf, or no ELF file"; done_testing
fi
file=$shoal # the file to inspect
calls() { readelf --dyn-syms -W "$1" | grep -q "UND $2"; }
pie() { readelf -hW "$shoal" | grep -q "Type: *DYN" && readelf -dW "$shoal" | grep -q "FLAGS_1.*PIE"; }
relro() { readelf -lW "$file" | grep -q GNU_RELRO && readelf -dW "$file" | grep -qE "BIND_NOW|Flags:.*NOW"; }
no_exec_stack() {
    readelf -lW "$file" | grep GNU_STACK | grep -q "RW " &&
        ! readelf -lW "$file" | grep -qE "(LOAD|GNU_STACK).*RWE"
}
protector() { calls "$shoal" __stack_chk_fail; }
fortify() { calls "$shoal" __snprintf_chk && calls "$shoal" __vsnprintf_chk; }
plugin_is_hard() { relro && no_exec_stack; }
first_instruction() { objdump -d --no-show-raw-insn --disassemble=main "$shoal" | sed -n '/<main>:/{n;p}'; }
branches() { first_instruction | grep -qE "endbr64|paciasp|bti"; }

check "the program is position independent" pie
check "its stack is not executable, and nothing is both writable and executable" no_exec_stack
check "relocations are resolved at startup and then read-only" relro
check "stack protector" protector
check "fortified calls of the C library" fortify
case $(uname -m) in
x86_64 | aarch64) if command -v objdump >/dev/null; then check "indirect branches have landing pads" branches; fi ;;
esac
for plugin in "$SHOAL_BUILD"/shoal-*.so "$SHOAL_BUILD"/lib/libshoal.so.0; do
    [ -e "$plugin" ] || continue
    name=$(basename "$plugin")
    file=$plugin; check "$name: relocations, stack" plugin_is_hard
done
done_testing
