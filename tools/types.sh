#!/usr/bin/env bash
# Checks names across headers: no type is declared in two of them, and no two headers of one name are included by
# their short name (so that which one is meant never depends on the include path).
set -u
cd "$(dirname "$0")/.." || exit 1
command -v ctags >/dev/null || { echo "types: ctags is missing, not checked"; exit 0; }
bad=0

# A forward declaration (typedef struct x x; next to a later definition) is one declaration in one header. The vector
# types of kernels/cpu/vec_*.h are one type each in variants of which a file includes one.
while read -r name files; do
    echo "types: $name is declared in $files"; bad=1
done < <(find src -name '*.h' ! -path 'src/kernels/cpu/vec_*.h' -print0 | xargs -0 ctags -f - --kinds-C=t 2>/dev/null |
    cut -f1,2 | sort -u | awk '{n[$1]++; f[$1] = f[$1] " " $2} END {for (t in n) if (n[t] > 1) print t f[t]}')

short=$(find src tests -name '*.h' -printf '%f\n' | sort | uniq -d)
for name in $short; do
    if grep -rnE "^#include \"$name\"" src tests --include='*.[ch]'; then
        echo "types: $name is the name of several headers: include it with its folder"; bad=1
    fi
done
exit $bad
