#!/usr/bin/env bash
# Static checks: format, shell scripts, layers, budgets, cppcheck, and warnings as errors with gcc and clang. LINT_CC
# names the compilers of the last one; "none" is for when both build everything with warnings as errors anyway.
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build/cppcheck
bad=0
say() { printf 'lint: %s\n' "$1"; }

if command -v clang-format >/dev/null; then
    say "clang-format"
    find src include tests bench plugins examples -name '*.[ch]' -print0 | xargs -0 clang-format --dry-run --Werror || bad=1
else say "clang-format is missing, skipped"; fi

say "shell scripts"
mapfile -t scripts < <(find . -name '*.sh' ! -path './build/*' | sort)
if grep -nE '^.{121,}' "${scripts[@]}"; then say "lines of scripts may have at most 120 columns"; bad=1; fi
if command -v shellcheck >/dev/null; then shellcheck -S warning "${scripts[@]}" || bad=1
else say "shellcheck is missing, skipped"; fi

say "layers"; tools/layers.sh || bad=1
say "types"; tools/types.sh || bad=1
say "budgets"; tools/budgets.sh

if command -v cppcheck >/dev/null; then
    say "cppcheck"
    cppcheck -q -j"$(getconf _NPROCESSORS_ONLN)" --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=ctuuninitvar --suppress=internalAstError \
        --suppress=invalidPointerCast --error-exitcode=1 --cppcheck-build-dir=build/cppcheck -Isrc -Iinclude \
        -D__x86_64__ -D__GNUC__=12 -DSH_VERSION='""' src || bad=1
else say "cppcheck is missing, skipped"; fi

# Some gcc warnings come only from its optimizer, so gcc has to build. For clang a syntax check finds all of them.
for cc in ${LINT_CC:-gcc clang}; do
    [ "$cc" != none ] || continue
    command -v "$cc" >/dev/null || { say "$cc is missing, skipped"; continue; }
    say "$cc warnings as errors"
    case $cc in clang*) targets=(syntax) ;; *) targets=(program tests) ;; esac
    make -s -j"$(getconf _NPROCESSORS_ONLN)" VARIANT=lint-gcc CC="$cc" WERROR=1 "${targets[@]}" |
        grep -vE '^(CC|LD|PROTOC) '
    [ "${PIPESTATUS[0]}" = 0 ] || bad=1
done
[ $bad = 0 ] && say "clean"
exit $bad
