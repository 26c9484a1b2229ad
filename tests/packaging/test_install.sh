#!/usr/bin/env bash
# `make install` and `make uninstall` into a folder, the installed program, and what is made for others to install.
. "$(dirname "$0")/../tap.sh"
scratch
case $SHOAL_BUILD in *release) ;; *) skip "installing" "not a release build"; done_testing ;; esac
trap 'kill "${server:-}" "${manager:-}" 2>/dev/null; wait "${server:-}" 2>/dev/null; cd /; rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs the tests
make_it() { make -s -C "$root" PREFIX=/usr DESTDIR="$work/to" "$@"; }
shoal=$work/link/shoal # a link to the installed program: it must find its files from there
files() { find to -type f -o -type l | sort; }

check "make install" make_it install
mkdir link && ln -s "$work/to/usr/bin/shoal" link/shoal
complete_tree() {
    local file
    for file in usr/bin/shoal usr/share/shoal/models/demo/config.json usr/share/man/man1/shoal.1 \
        usr/share/man/man1/shoal-serve.1 usr/share/doc/shoal/README.md usr/share/doc/shoal/docs/install.md \
        usr/share/doc/shoal/examples/kubernetes.yaml usr/lib/systemd/system/shoal.service \
        usr/lib/systemd/system/shoal-worker.service usr/share/bash-completion/completions/shoal \
        usr/lib/libshoal.so usr/lib/libshoal.so.0 usr/lib/libshoal.a usr/include/shoal.h \
        usr/share/zsh/site-functions/_shoal usr/share/fish/vendor_completions.d/shoal.fish; do
        [ -s "to/$file" ] || { echo "no $file"; return 1; }
    done
    [ "$(stat -c %a to/etc/shoal/server.env to/etc/shoal/worker.env | sort -u)" = 600 ] || { echo "mode"; return 1; }
    grep -q '^Version: [0-9]' to/usr/lib/pkgconfig/shoal.pc && ! grep -rnI '@[a-z]*@' to/usr/lib to/etc
}
check "everything is there; settings, which hold secrets, are for root alone" complete_tree

debian_has_all() { # `make deb` would find out, but builds everything once more
    make_it install DESTDIR="$work/debian" unitdir=/lib/systemd/system libdir=/usr/lib/any || return 1
    local pattern
    while read -r pattern; do # shellcheck disable=SC2086
        (cd debian && find $pattern ! -type d) >>owned || return 1
    done < <(cat "$root"/packaging/debian/*.install)
    (cd debian && find etc lib usr ! -type d) | sort | diff - <(sort owned)
}
check "each file goes into one Debian package" debian_has_all

finds_plugins() {
    "$shoal" fingerprint >facts
    grep -q "\"rdma_plugin\":.*$work/to/usr/bin/../lib/shoal/shoal-rdma.so" facts || { cat facts; return 1; }
}
if [ -e "$SHOAL_BUILD/shoal-rdma.so" ]; then check "the installed program finds its plugins" finds_plugins
else skip "the installed program finds its plugins" "none was built"; fi

port=$(free_port) url=http://127.0.0.1:$port
ready() { curl -fs -m 2 "$url/health/ready"; }
ask() {
    curl -fs -m 30 -H 'content-type: application/json' \
        -d '{"prompt":"Once upon a time","max_tokens":8,"temperature":0}' "$url/v1/completions"
}
manager() { # writes down what a service manager is told
    exec python3 - <<'PY'
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind("notify")
with open("told", "w", buffering=1) as out:
    while True: out.write(s.recv(4096).decode())
PY
}
serves() {
    within 20 test -S notify
    (cd / && NOTIFY_SOCKET=$work/notify exec "$shoal" serve --port "$port") >log 2>&1 & server=$!
    within 60 ready && ask >answer || { cat log; return 1; }
    grep -q '"text":" there was' answer && kill -TERM $server && wait $server
}
reports() { within 10 grep -q '^STOPPING=1' told && grep -q '^READY=1' told || { cat told; return 1; }; }
manager & manager=$!
check "the installed program, by a link and from another folder, serves the demo model" serves
check "it has told its service manager when it was ready, and when it stopped" reports

man_pages() {
    local said
    said=$(groff -man -Tutf8 -ww -z to/usr/share/man/man1/shoal*.1 2>&1)
    [ -z "$said" ] || { echo "$said"; return 1; }
    groff -man -Tascii -P-cbou to/usr/share/man/man1/shoal-serve.1 | grep -qE -- '^ +--port N'
}
if command -v groff >/dev/null && groff -man -z /dev/null 2>/dev/null; then
    check "every manual page is formatted without a warning" man_pages
else skip "manual pages" "groff, or its macros for manual pages, is missing"; fi
completes() {
    # shellcheck disable=SC2016
    gives "serve" bash -c '. to/usr/share/bash-completion/completions/shoal; COMP_WORDS=(shoal serv) COMP_CWORD=1
        _shoal; echo "${COMPREPLY[*]}"'
}
check "bash completes from the installed file" completes

units_are_right() { # what it says of paths is about this machine, where nothing is installed
    local said
    said=$(systemd-analyze verify to/usr/lib/systemd/system/shoal*.service 2>&1 | grep shoal |
        grep -vE "is not executable: No such file|Command 'man ")
    [ -z "$said" ] || { echo "$said"; return 1; }
}
units_are_hardened() {
    local unit
    for unit in to/usr/lib/systemd/system/shoal*.service; do
        systemd-analyze security --offline=true --threshold=20 "$unit" >out 2>&1 || { tail -n 2 out; return 1; }
    done
}
if command -v systemd-analyze >/dev/null; then
    check "systemd accepts the units" units_are_right
    if systemd-analyze security --help 2>/dev/null | grep -q -- --offline; then
        check "and finds them well hardened: an exposure of at most 2.0 of 10" units_are_hardened
    else skip "the units are hardened" "this systemd-analyze cannot look at files"; fi
else skip "the units" "systemd-analyze is missing"; fi

settings_stay() {
    echo SHOAL_PORT=1 >>to/etc/shoal/server.env
    make_it install && grep -q SHOAL_PORT=1 to/etc/shoal/server.env || { echo "overwritten"; return 1; }
    make_it uninstall && gives to/etc/shoal/server.env files
}
check "changed settings survive another install and an uninstall; nothing else does" settings_stay
leaves_nothing() {
    rm to/etc/shoal/server.env && make_it install && make_it uninstall && gives "" files &&
        gives "" find to -name '*shoal*'
}
check "uninstall leaves nothing" leaves_nothing

same_bytes() {
    make -s -C "$root" dist && "$root/packaging/dist.sh" "$work/again" || return 1
    cd again && cmp SHA256SUMS "$root/build/dist/SHA256SUMS" && sha256sum -c SHA256SUMS &&
        grep -q "sha256 \"$(cut -d ' ' -f 1 SHA256SUMS)\"" shoal.rb
}
if git -C "$root" rev-parse -q --verify HEAD >/dev/null 2>&1; then
    check "a release is packed to the same bytes twice; its formula has the checksum" same_bytes
else skip "a release is packed to the same bytes twice" "not a git checkout"; fi

image_is_complete() {
    local file package bad=0
    for file in $(readelf -d "$SHOAL_BUILD/shoal" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'); do
        package=$(dpkg -S "*/$(uname -m)-*/$file" 2>/dev/null | sed -n '1s/:.*//p')
        [ "$package" = libc6 ] || grep -qw -- "$package" "$root/Dockerfile" && continue
        echo "not installed: $package"; bad=1
    done
    return $bad
}
builds_with() { # tools/setup.sh is where build dependencies are listed
    local package bad=0
    for package in $(sed -n '/^build_debian=/,/"$/p' "$root/tools/setup.sh" | grep -oE 'lib[a-z0-9.-]+-dev'); do
        [ "$package" = libc6-dev ] || grep -qw -- "$package" "$root/packaging/debian/control" && continue
        echo "not named: $package"; bad=1
    done
    return $bad
}
if command -v dpkg >/dev/null && command -v readelf >/dev/null; then
    check "the container image has every library that the program is linked with" image_is_complete
else skip "the container image has every library" "dpkg or readelf is missing"; fi
check "the Debian package names every library that a build needs" builds_with
yaml() {
    python3 - "$root"/packaging/examples/*.yaml <<'PY'
import sys, yaml
for path in sys.argv[1:]:
    docs = [d for d in yaml.safe_load_all(open(path)) if d]
    assert docs, path
    for d in docs:
        assert "services" in d or {"apiVersion", "kind", "metadata", "spec"} <= set(d), (path, d)
PY
}
if python3 -c 'import yaml' 2>/dev/null; then check "compose file and manifests are well-formed YAML" yaml
else skip "compose file and manifests are well-formed YAML" "python3 has no yaml"; fi
done_testing
