#!/usr/bin/env bash
# Checks that every folder of src/ includes only what tools/layers.txt allows: whole layers, or single headers of one.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
for dir in src/*/; do
    layer=$(basename "$dir")
    allowed=$(sed -n "s/^$layer: *//p" tools/layers.txt)
    grep -q "^$layer:" tools/layers.txt || { echo "layers: $layer is not in tools/layers.txt"; bad=1; continue; }
    while IFS=: read -r file line include; do
        used=$(sed -E 's/^#include "([a-z_]+)\/.*/\1/' <<<"$include")
        header=$(sed -E 's/^#include "(.*)"/\1/' <<<"$include")
        case " $allowed $layer " in *" $used "* | *" $header "*) ;; *)
            echo "$file:$line: $layer may not include $header"; bad=1 ;;
        esac
    done < <(grep -rnE '^#include "[a-z_]+/' "$dir" --include='*.[ch]')
done
exit $bad
