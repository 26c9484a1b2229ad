#!/usr/bin/env bash
# Builds a Debian package of the last commit in FOLDER, and checks it with lintian where that is installed.
#   packaging/deb.sh FOLDER
# Needs debhelper, dpkg-dev and the packages that packaging/debian/control names. Version and date are those of VERSION
# and of the commit; DEBFULLNAME and DEBEMAIL name you as the maintainer.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"; folder=$(cd "$1" && pwd)
version=$(cat VERSION) source=$folder/shoal-$version
for tool in dh dpkg-buildpackage git; do
    command -v $tool >/dev/null && continue
    echo "deb: skipped: $tool is missing (packages debhelper, dpkg-dev, git)"; exit 0
done
rm -rf "$folder"/shoal*
git archive --prefix="shoal-$version/" HEAD | tar -x -C "$folder"
cp -r "$source/packaging/debian" "$source/debian"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
[ -z "${DEBEMAIL:-}" ] || maintainer="${DEBFULLNAME:-$DEBEMAIL} <$DEBEMAIL>"
sed -i "s/^Maintainer: .*/Maintainer: $maintainer/" "$source/debian/control"
cat >"$source/debian/changelog" <<CHANGES
shoal ($version) unstable; urgency=medium

  * Version $version.

 -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
CHANGES
(cd "$source" && dpkg-buildpackage -b -us -uc -j"$(nproc)") >"$folder/build.log" 2>&1 ||
    { tail -n 30 "$folder/build.log"; exit 1; }
rm -rf "$source"
if command -v lintian >/dev/null; then lintian --fail-on error,warning "$folder"/*.changes
else echo "deb: lintian is missing, skipped"; fi
ls "$folder"/*.deb
