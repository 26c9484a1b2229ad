#!/usr/bin/env bash
# A hub that is busy, lies or breaks off, and disks that are full: what is tried again, and that no failure leaves a
# broken file in the cache.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { skip "a pull survives a bad hub" "python3 is missing"; done_testing; }
scratch
hub_start

busy() { # 429: waits as long as it is told
    forget; faults '{"api": {"status": 429, "times": 1, "headers": {"Retry-After": "1"}}}'
    SECONDS=0; exits 0 pull org/demo && whole && [ $SECONDS -ge 1 ]
}
busy_for_long() {
    fails "asks to wait 3600 s" '{"api": {"status": 429, "times": 1, "headers": {"Retry-After": "3600"}}}'
}
down() { survives '{"api": {"status": 503, "times": 2}, "locate": {"status": 500, "times": 2},
    "files": {"status": 502, "times": 3}}'; }
broken_off() { survives '{"files": {"cut": 100000, "times": 8, "file": "model.safetensors"}}'; }
# With a short timeout, since a pull gives up after six of them.
impatient() { HF_HUB_DOWNLOAD_TIMEOUT=1 "$@"; }
stalled() { impatient survives '{"files": {"stall": 50000, "times": 2, "file": "model.safetensors"}}'; }
silent() { impatient fails "given up after .* sends nothing" '{"files": {"stall": 0, "file": "model.safetensors"}}'; }
down_for_good() {
    impatient fails "given up after [0-9]* tries: 127.0.0.2 answers with status 500" \
        '{"files": {"status": 500, "file": "model.safetensors"}}'
}
corrupt_once() { survives '{"files": {"flip": 5000000, "times": 1, "file": "model.safetensors"}}'; }
corrupt() { fails "model.safetensors, fetched twice: has the digest [0-9a-f]{64}, not" '{"files": {"flip": 5000000}}'; }
corrupt_small() { fails "config.json, fetched twice: has the digest [0-9a-f]{40}, not" '{"files": {"flip": 3,
    "file": "config.json"}}'; }
wrong_range() { survives '{"files": {"shifted": true, "times": 2}}'; }
wrong_size() { survives '{"files": {"total": 5, "times": 2}}'; }
too_much() { survives '{"files": {"more": true, "times": 2}}'; }
no_ranges() {
    survives '{"files": {"whole": true}}' || return 1
    rm -rf "$(snapshot)" && mv "$(blobs)/$(sum256 hub/org/demo/model.safetensors)" half &&
        head -c 3000000 half >"$(blobs)/$(sum256 half).incomplete" && exits 0 pull org/demo && whole
}
expired() { survives '{"files": {"expire": true, "times": 2, "file": "model.safetensors"}}'; }
denied() { fails "model.safetensors: 127.0.0.2 answers with status 403" '{"files": {"status": 403,
    "file": "model.safetensors"}}'; }
listed_only() { fails "tokenizer.json: .* lists this file but does not have it" \
    '{"locate": {"status": 404, "headers": {"X-Error-Code": "EntryNotFound"}, "file": "tokenizer.json"}}'; }
moved_on() {
    fails "answers with commit $(printf '%040d' 1), not $commit" \
        "{\"locate\": {\"commit\": \"$(printf '%040d' 1)\"}}" &&
        fails "answers with the digest" "{\"locate\": {\"etag\": \"$(printf '%064d' 1)\"}}"
}

# Disks.
small_disk() {
    forget; mkdir -p disk && mount -t tmpfs -o size=300m tmpfs disk || return 1
    head -c 290000000 /dev/zero >disk/filler
    HF_HUB_CACHE=$work/disk refuses 1 "0.01 GB are missing, but .*disk has only 0.0[0-9] GB free" pull org/demo
    local rc=$?
    umount disk; return $rc
}
full_disk() { # as a limit of the shell, which shows in the middle of a file
    forget; (ulimit -f 4000; refuses 1 "incomplete: File too large" pull org/demo) && unfinished &&
        exits 0 pull org/demo && whole
}
no_right() {
    forget; mkdir -p "$HF_HOME"; echo x >"$HF_HOME/hub"
    refuses 1 "hub.*: (File exists|Not a directory)" pull org/demo
}

check "a busy hub is waited for as it asks" busy
check "but not for an hour" busy_for_long
check "errors of the server are tried again" down
check "and given up in the end" down_for_good
check "transfers that break off go on where they stopped" broken_off
check "transfers that stall are repeated" stalled
check "a server that sends nothing is given up" silent
check "corrupt bytes are found and fetched again" corrupt_once
check "a file that stays corrupt is refused" corrupt
check "so is a small one" corrupt_small
check "a range that was not asked for is not taken" wrong_range
check "nor one of a file of another size" wrong_size
check "bytes after the end are not taken" too_much
check "a server without ranges serves too" no_ranges
check "an address that has expired is asked for again" expired
check "but not for ever" denied
check "a file that is only listed is named" listed_only
check "a repository that changes under the download is refused" moved_on
if [ "$(id -u)" = 0 ] && mkdir -p try && mount -t tmpfs tmpfs try 2>/dev/null; then
    umount try; check "free space is checked first" small_disk
else skip "free space is checked first" "needs root, to mount a small disk"; fi
check "a disk that fills up leaves no broken file" full_disk
check "a cache that cannot be written is an error" no_right
done_testing
