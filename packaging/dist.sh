#!/usr/bin/env bash
# Packs the last commit as FOLDER/shoal-VERSION.tar.gz and writes its checksum to FOLDER/SHA256SUMS. Times, owners and
# order come from the commit, so that the same commit gives the same bytes.
#   packaging/dist.sh FOLDER
set -eu
cd "$(dirname "$0")/.."
folder=$1 name=shoal-$(cat VERSION)
git rev-parse -q --verify HEAD >/dev/null || { echo "dist: needs a git checkout with a commit" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || echo "dist: packs the last commit, without the changes since" >&2
mkdir -p "$folder"
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$folder/$name.tar.gz.part"
mv "$folder/$name.tar.gz.part" "$folder/$name.tar.gz"
(cd "$folder" && sha256sum "$name.tar.gz" >SHA256SUMS && cat SHA256SUMS)
