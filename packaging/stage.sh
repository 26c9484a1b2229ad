#!/usr/bin/env bash
# Lays out what `make install` copies: one folder for each destination (packaging/install.mk).
#   packaging/stage.sh BUILD STAGE NAME=VALUE...
# The values replace @NAME@ in the systemd units and in the pkg-config file of the library.
set -eu
cd "$(dirname "$0")/.."
build=$1 stage=$2; shift 2
shoal=$build/shoal
rm -rf "$stage"
mkdir -p "$stage"/{bin,plugins,data/models,man,doc,bash,zsh,fish,units,settings,lib/pkgconfig,include}

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
cp include/shoal.h "$stage/include/"
version=$(cat VERSION) soname=$(basename "$build"/lib/libshoal.so.?)
cp "$build/lib/$soname" "$stage/lib/libshoal.so.$version"
ln -s "libshoal.so.$version" "$stage/lib/$soname"
ln -s "$soname" "$stage/lib/libshoal.so"
cp "$build/lib/libshoal.a" "$stage/lib/"
cp src/lib/shoal.pc.in "$stage/lib/pkgconfig/shoal.pc"
filled=("$stage"/units/*.service "$stage/lib/pkgconfig/shoal.pc")
for value in "$@"; do sed -i.orig "s|@${value%%=*}@|${value#*=}|g" "${filled[@]}"; done
rm -f "${filled[@]/%/.orig}"
