#!/usr/bin/env bash
# Checks that every folder of src/ includes only what tools/layers.txt allows. The API may use the engine only through
# engine/engine_client.h.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
for dir in src/*/; do
    layer=$(basename "$dir")
    allowed=$(sed -n "s/^$layer: *//p" tools/layers.txt)
    grep -q "^$layer:" tools/layers.txt || { echo "layers: $layer is not in tools/layers.txt"; bad=1; continue; }
    while IFS=: read -r file line include; do
        used=$(sed -E 's/^#include "([a-z_]+)\/.*/\1/' <<<"$include")
        case " $allowed $layer " in *" $used "*) ;; *) echo "$file:$line: $layer may not include $used"; bad=1 ;; esac
        if [ "$layer" = api ] && [ "$used" = engine ] && [[ $include != *engine/engine_client.h* ]]; then
            echo "$file:$line: api may include engine/engine_client.h only"; bad=1
        fi
    done < <(grep -rnE '^#include "[a-z_]+/' "$dir" --include='*.[ch]')
done
exit $bad
