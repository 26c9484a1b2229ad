#!/usr/bin/env bash
# Pulling a model: what arrives, where, and how the hub is asked; going on after an end of any kind; sharing the work.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { skip "models are pulled" "python3 is missing"; done_testing; }
scratch
hub_start

layout() {
    local weights
    weights=$(sum256 hub/org/demo/model.safetensors)
    exits 0 pull org/demo && whole && gives "$(snapshot)" cat out &&
        gives "../../blobs/$weights" readlink "$(snapshot)/model.safetensors" || return 1
    cd "$(snapshot)" && gives "$(cd "$root/models/demo" && echo ./*)" echo ./*
}
again() { calm; exits 0 pull org/demo && whole && gives 1 grep -c . "$requests" && [ ! -s err ]; }
revisions() {
    forget; exits 0 pull org/demo@v1 && gives $commit cat "$HF_HOME/hub/models--org--demo/refs/v1" || return 1
    exits 0 pull org/demo@refs/pr/1 && gives $commit cat "$HF_HOME/hub/models--org--demo/refs/refs/pr/1" || return 1
    exits 0 pull "org/demo@$commit" && [ ! -e "$HF_HOME/hub/models--org--demo/refs/main" ] || return 1
    "$shoal" info --model org/demo@v1 >out && gives "$(snapshot)" "$shoal" pull --offline org/demo@v1
}
renamed() { calm; exits 0 pull old/name && [ -e "$HF_HOME/hub/models--old--name/snapshots/$commit/config.json" ]; }
in_parallel() { # the files of org/big in chunks
    calm; exits 0 pull org/big && whole big || return 1
    [ "$(grep -c '^other GET' "$requests")" -ge 6 ]
}
home_of_cache() {
    HF_HUB_CACHE=$work/elsewhere exits 0 pull org/demo && [ -e elsewhere/models--org--demo/refs/main ] || return 1
    env -u HF_HOME XDG_CACHE_HOME="$work/xdg" "$shoal" pull org/demo >out &&
        [ -e xdg/huggingface/hub/models--org--demo/refs/main ] || return 1
    env -u HF_HOME "$shoal" pull org/demo >out && [ -e .cache/huggingface/hub/models--org--demo/refs/main ]
}

# The end of a pull, and another one.
begun() { [ "$(du -sb "$(blobs big)" 2>/dev/null | cut -f1)" -gt "$1" ]; }
slow() { forget; faults '{"files": {"rate": 3000000}}'; }
start() { "$shoal" pull org/big >out2 2>err2 & pid=$!; }
interrupted() {
    slow; start; within 10 begun 1000000 || return 1
    kill -INT $pid; wait $pid; gives 130 echo $? || return 1
    grep -q "org/big: stopped at [0-9]* %; the same command goes on" err2 && unfinished big || { cat err2; return 1; }
    goes_on
}
killed() { slow; start; within 10 begun 1000000 || return 1; kill -9 $pid; wait $pid; unfinished big && goes_on; }
goes_on() { # and does not fetch the beginning of a file again
    local begun
    begun=$(find "$(blobs big)" -name '*.incomplete' -size +100k | wc -l)
    calm; exits 0 pull org/big && whole big || return 1
    [ "$begun" -ge 1 ] && [ "$(grep -c 'range=bytes=0-8388607' "$requests")" = $((2 - begun)) ]
}
someone_elses_half() { # as the Hugging Face tools leave it
    forget; mkdir -p "$(blobs big)"
    head -c 10000000 hub/org/big/model-00001-of-00002.safetensors \
        >"$(blobs big)/$(sum256 hub/org/big/model-00001-of-00002.safetensors).incomplete"
    exits 0 pull org/big && whole big && grep -q 'range=bytes=10000000-' "$requests"
}
a_bad_half() { # a beginning that is not that of the file: found by its digest, and fetched again
    forget; mkdir -p "$(blobs big)"
    head -c 10000000 /dev/zero >"$(blobs big)/$(sum256 hub/org/big/model-00001-of-00002.safetensors).incomplete"
    exits 0 pull org/big && whole big
}
a_bad_blob() { # of another size than the hub says
    forget; exits 0 pull org/demo && calm || return 1
    echo x >"$(blobs)/$(sum256 hub/org/demo/model.safetensors)"
    exits 0 pull org/demo && whole
}
shared() { # two pulls at once: every byte is fetched once
    local first
    slow; start; first=$pid; start
    wait "$first" && wait $pid || { cat err2; return 1; }
    whole big && gives 2 grep -c 'other GET.*range=bytes=0-8388607' "$requests"
}
hold() { # LOCK SECONDS
    mkdir -p "${1%/*}"
    (exec 9>"$1"; flock 9; exec sleep "$2") >/dev/null 2>&1 & pid=$!
}
waits_aloud() { # for a process that has the lock of the last file
    local lock
    forget; lock=$HF_HOME/hub/.locks/models--org--demo/$(sum256 hub/org/demo/model.safetensors).lock
    hold "$lock" 1.5
    within 5 not flock -n "$lock" true || return 1
    exits 0 script -qec "$shoal pull org/demo" /dev/null || return 1
    wait $pid; whole && grep -q "another process is downloading" out
}
gives_up_waiting() {
    local lock
    forget; lock=$HF_HOME/hub/.locks/models--org--demo/$(sum256 hub/org/demo/model.safetensors).lock
    hold "$lock" 20
    within 5 not flock -n "$lock" true || return 1
    HF_HUB_DOWNLOAD_TIMEOUT=1 refuses 1 "another process is downloading model.safetensors .* no progress" pull org/demo
    local rc=$?
    kill $pid; return $rc
}
bar() { forget; exits 0 script -qec "$shoal pull org/big" /dev/null && grep -qE 'org/big \[#* *\] [0-9]+ %, ' out; }
lines() { slow; exits 0 pull org/big && grep -qE '[0-9] MB/s, 0:[0-9]+ left$' err; }

check "a pull brings what is needed, in the layout of the Hugging Face tools" layout
check "a second pull asks for the description alone, and says nothing" again
check "branches, tags and commits can be pulled, and found again" revisions
check "a model that was renamed is followed" renamed
check "large files come in ranges" in_parallel
check "the cache is where the variables of the Hugging Face tools say" home_of_cache
check "Ctrl-C ends a pull cleanly, and the next one goes on" interrupted
check "so it does after kill -9" killed
check "an incomplete file of another tool is completed" someone_elses_half
check "one with other bytes is fetched again" a_bad_half
check "so is a blob of the wrong size" a_bad_blob
check "two pulls of one model share the work" shared
if command -v script >/dev/null; then
    check "a pull shows that it waits for another process" waits_aloud
    check "a terminal gets a bar" bar
else skip "a terminal gets a bar" "the program script is missing"; fi
check "a process that makes no progress is not waited for" gives_up_waiting
check "without a terminal there are lines with rate and time left" lines
done_testing
