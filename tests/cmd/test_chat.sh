#!/usr/bin/env bash
# `shoal chat` at a terminal: keys, pasted lines, Ctrl-C and the history.
. "$(dirname "$0")/../tap.sh"
shoal=${SHOAL_BUILD:-$root/build/release}/shoal
scratch
if ! command -v python3 >/dev/null || ! command -v jq >/dev/null; then
    skip "chat at a terminal" "python3 or jq is missing"; done_testing
fi
export TERM=xterm HOME=$work
# What turns bracketed paste on comes once for each line; only the prompt itself is drawn again.
typed() { # KEYS of each line...
    printf '%s\n' "$@" | timeout 120 "$root/tests/cmd/typed.py" '\x1b[?2004h> ' \
        "$shoal" chat --model "$root/models/demo" --max-tokens 2 --state-dir "$work/state" >out
}
asked() { gives "$1" jq -c '[.[] | select(.role == "user").content]' talk.json; } # JSON

keys() { # to the start, the end; a word and a line deleted; in a locale without UTF-8, too
    LC_ALL=C typed 'is it\x01What \x05 so wrong\x17\r' 'never\x15caf\xc3\xa9 \xe4\xb8\xad\x1b[D\x1b[3~\r' \
        '/save talk.json\r' '/exit\r' && asked '["What is it so ","café "]'
}
check "the keys of a shell edit a line" keys
pastes() {
    typed 'All: \x1b[200~one\rtw\xc3\xb6\r\rthree\x1b[201~!\r' '/save talk.json\r' '/exit\r' &&
        asked '["All: one\ntwö\n\nthree!"]'
}
check "pasted lines stay together" pastes
long_paste() { # of 1.2 MiB, in which each line would be a message
    local text; text=$(yes 'never said' | head -c 1250000 | tr '\n' '~' | sed 's/~/\\r/g')
    typed "short\\x1b[200~$text\\x1b[201~ but fine\\r" '/save talk.json\r' '/exit\r' &&
        asked '["short but fine"]' && grep -q "the pasted text is longer than 1 MiB, and was dropped" out
}
check "a paste that is too long is dropped whole, and that is said" long_paste
interrupts() { # one and a message between do not leave
    typed 'a\x03' 'b\r' 'c\x03' '\x03' && grep -q "Ctrl-C again, or /exit, leaves the chat" out
}
check "Ctrl-C ends a line, twice the chat" interrupts
history() {
    rm -f state/chat_history
    typed 'first\r' '\x1b[200~one\rtwo\x1b[201~\r' '\x04' &&
        typed '\x1b[A\r' '\x12fir\x1b\r' '/save talk.json\r' '\x04' && asked '["one\ntwo","first"]' &&
        gives 600 stat -c %a state/chat_history
}
check "the next chat has the history, which is private" history
killed() { # in the middle of an answer, as a second Ctrl-C ends it
    local chat rc
    printf '%s\n' 'keepme\r' | timeout 120 "$root/tests/cmd/typed.py" '\x1b[?2004h> ' "$shoal" chat \
        --model "$root/models/demo" --max-tokens 100000 --state-dir "$work/killed" >out & chat=$!
    within 60 grep -q keepme killed/chat_history; rc=$?
    kill -KILL "$(pgrep -f "^$shoal chat.*--state-dir $work/killed")"
    wait $chat
    return $rc
}
check "a chat that ends in the middle of an answer has kept its history" killed
mkdir full
full_disk() {
    mkdir -m 700 full/state && cp state/chat_history full/state/ && ! head -c 60000 /dev/zero >full/rest
    cp full/state/chat_history before
    printf '%s\n' 'more\r' '/exit\r' | timeout 120 "$root/tests/cmd/typed.py" '\x1b[?2004h> ' \
        "$shoal" chat --model "$root/models/demo" --max-tokens 2 --state-dir "$work/full/state" >out &&
        grep -q "the history cannot be kept: No space left on device" out && cmp before full/state/chat_history
}
if said=$(mount -t tmpfs -o size=32k none full 2>&1); then
    check "a full disk is reported, and costs no history" full_disk
    umount full
else
    skip "a full disk and the history" "$said"
fi
done_testing
