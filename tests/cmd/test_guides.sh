#!/usr/bin/env bash
# The guides mention only commands and flags that exist, and their links work.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
scratch
pages=("$root"/README.md "$root"/docs/*.md)

# Every "shoal COMMAND ... --flag" on a page, in code blocks and in backticks.
lines() { grep -ohE '(^|[`(/ ]|\$ )shoal [a-z]+[^`#|)]*' "${pages[@]}" | sed -E 's/^.*shoal ([a-z])/\1/'; }
known() {
    local line name flag bad=0
    "$shoal" help --all | sed -n 's/^  \([a-z]*\) .*/\1/p' >commands
    while read -r line; do
        line=${line#config check } # the flags are those of the command that is checked
        name=${line%% *}
        grep -qx "$name" commands || continue # prose: "shoal of ranks"
        "$shoal" help "$name" --all >page
        for flag in $(grep -oE -- '--[a-z][a-z-]+' <<<"$line"); do
            grep -qE -- "(^|[ ,])$flag( |$)" page || { echo "shoal $name has no $flag: $line"; bad=1; }
        done
    done < <(lines)
    return $bad
}
check "every flag that a page uses with a command belongs to that command" known
commands_known() { # in code blocks the word after shoal is a command
    local bad=0 page name
    "$shoal" help --all | sed -n 's/^  \([a-z]*\) .*/\1/p' >commands
    for page in "${pages[@]}"; do
        for name in $(sed -n '/^```sh/,/^```/p' "$page" | grep -oE '(^|/|[ (])shoal [a-z]+' | sed 's/.*shoal //'); do
            grep -qx "$name" commands || { echo "$page: shoal $name"; bad=1; }
        done
    done
    return $bad
}
check "every command in a code block exists" commands_known
links() {
    local bad=0 page target
    for page in "${pages[@]}"; do
        for target in $(grep -oE '\]\([^)#]+' "$page" | sed 's/](//' | grep -v '^http'); do
            [ -e "$(dirname "$page")/$target" ] || { echo "$page: $target"; bad=1; }
        done
    done
    return $bad
}
check "every link on a page leads to a file" links
done_testing
