#!/usr/bin/env bash
# Copies a staged tree (packaging/stage.sh) to its destinations, or removes what such a copy has left there.
#   packaging/install.sh install|uninstall STAGE DESTDIR FOLDER=DESTINATION...
# Settings belong to the user once they are there: an existing file is kept, and one that was changed is not removed.
set -eu
action=$1 stage=$2 root=$3; shift 3

put() { # SOURCE TARGET: the mode of a secret for settings, else that of a program or of a file
    local mode=644
    [ ! -x "$1" ] || mode=755
    case $1 in "$stage"/settings/*)
        [ ! -e "$2" ] || return 0
        mode=600 ;;
    esac
    mkdir -p "$(dirname "$2")"
    if [ -L "$1" ]; then ln -sfn "$(readlink "$1")" "$2"; return; fi
    install -m $mode "$1" "$2"
}
take() { # SOURCE TARGET
    case $1 in "$stage"/settings/*)
        [ ! -e "$2" ] || cmp -s "$1" "$2" || { echo "uninstall: $2 was changed, and stays"; return 0; } ;;
    esac
    rm -f "$2"
}
tidy() { # FROM TO: the folders that came with the files, and the destination if it is ours alone
    find "$1" -mindepth 1 -depth -type d | while read -r folder; do rmdir "$2/${folder#"$1"/}" 2>/dev/null; done
    case $2 in */shoal) rmdir "$2" 2>/dev/null ;; esac || true
}

for destination in "$@"; do
    from=$stage/${destination%%=*} to=$root${destination#*=}
    while IFS= read -r -d '' file; do
        case $action in
        install) put "$file" "$to/${file#"$from"/}" ;;
        uninstall) take "$file" "$to/${file#"$from"/}" ;;
        *) echo "install: there is no action '$action'" >&2; exit 2 ;;
        esac
    done < <(find "$from" \( -type f -o -type l \) -print0)
    [ "$action" = install ] || tidy "$from" "$to"
done
