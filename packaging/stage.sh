#!/usr/bin/env bash
# Lays out what `make install` copies: one folder for each destination (packaging/install.mk).
#   packaging/stage.sh BUILD STAGE NAME=VALUE...
# The values replace @NAME@ in the systemd units.
set -eu
cd "$(dirname "$0")/.."
build=$1 stage=$2; shift 2
shoal=$build/shoal
rm -rf "$stage"
mkdir -p "$stage"/{bin,plugins,data/models,man,doc,bash,zsh,fish,units,settings}

cp "$shoal" "$stage/bin/"
for plugin in "$build"/shoal-*.so; do [ ! -e "$plugin" ] || cp "$plugin" "$stage/plugins/"; done
cp -r models/demo "$stage/data/models/"

"$shoal" help --man >"$stage/man/shoal.1"
for name in $("$shoal" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    "$shoal" help --man "$name" >"$stage/man/shoal-$name.1"
done
"$shoal" completion bash >"$stage/bash/shoal"
{ echo "#compdef shoal"; "$shoal" completion zsh; } >"$stage/zsh/_shoal"
"$shoal" completion fish >"$stage/fish/shoal.fish"

cp -r README.md LICENSE docs "$stage/doc/"
cp -r packaging/examples "$stage/doc/"
cp packaging/systemd/*.env "$stage/settings/"
cp packaging/systemd/*.service "$stage/units/"
for value in "$@"; do sed -i.orig "s|@${value%%=*}@|${value#*=}|g" "$stage"/units/*.service; done
rm -f "$stage"/units/*.orig
