#!/usr/bin/env bash
# Prints functions over 70 lines, files over 1000 lines, and the median and 95th percentile of function lengths.
# The budgets inform; exceeding one does not fail. CONTRIBUTING.md says what is exempt.
set -u
cd "$(dirname "$0")/.." || exit 1
command -v ctags >/dev/null || { echo "budgets: skipped, ctags is missing"; exit 0; }
find src -name '*.c' -print0 | xargs -0 ctags -x --_xformat='%{end} %n %F %N' --kinds-C=f |
    awk '{print $1 - $2 + 1, $3 ":" $2, $4}' | sort -n >build/functions.txt
awk '{a[NR] = $1} END {if (NR) printf "functions: %d, median %d lines, 95th percentile %d, longest %d\n",
    NR, a[int((NR + 1) / 2)], a[int(NR * .95)], a[NR]}' build/functions.txt
awk '$1 > 70 {print "  over 70 lines: " $1, $2, $3}' build/functions.txt
find src tests \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 wc -l |
    awk '$2 != "total" && $1 > 1000 {print "  over 1000 lines: " $1, $2}'
