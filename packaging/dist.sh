#!/usr/bin/env bash
# Packs the last commit as FOLDER/shoal-VERSION.tar.gz and writes its checksum to FOLDER/SHA256SUMS. Times, owners and
# order come from the commit, so that the same commit gives the same bytes. The Homebrew formula next to it takes the
# tarball from there, or from the folder at DIST_URL.
#   packaging/dist.sh FOLDER
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"; folder=$(cd "$1" && pwd) name=shoal-$(cat VERSION)
git rev-parse -q --verify HEAD >/dev/null || { echo "dist: needs a git checkout with a commit" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || echo "dist: packs the last commit, without the changes since" >&2
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$folder/$name.tar.gz.part"
mv "$folder/$name.tar.gz.part" "$folder/$name.tar.gz"
(cd "$folder" && sha256sum "$name.tar.gz" >SHA256SUMS && cat SHA256SUMS)
sed "s|@url@|${DIST_URL:-file://$folder}/$name.tar.gz|; s|@sha256@|$(cut -d ' ' -f 1 "$folder/SHA256SUMS")|" \
    packaging/homebrew/shoal.rb >"$folder/shoal.rb"
