# Helpers for tests with a hub of their own (hub.py): source this after tap.sh.
#   hub_start         starts the hub, with the models org/demo (the demo model and files that nobody needs) and org/big
#                     (38 MB in two files); $hub is its address, $requests the log of what it was asked for
#   faults JSON       how it misbehaves from now on (see hub.py)
#   pull ARGS...      shoal pull
#   survives FAULTS   a pull of org/demo succeeds all the same
#   fails PATTERN FAULTS  it does not; the cache has nothing wrong in it, and all is well once the hub is
#   blobs, snapshot   folders of org/demo, or of the model in $1
#   whole [NAME]      the model is in the cache, and its files are those of the hub
#   unfinished        the cache has no broken file: none with its final name is different from the hub's
# shellcheck shell=bash disable=SC2034,SC2120 # of those who source this
shoal=$SHOAL_BUILD/shoal commit=0123456789abcdef0123456789abcdef01234567
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

hub_start() {
    mkdir -p hub/org hub/org/demo/onnx hub/org/big && cp "$root"/models/demo/* hub/org/demo/
    echo x | tee hub/org/demo/{pytorch_model.bin,consolidated.safetensors,README.md,onnx/model.safetensors} >/dev/null
    cp hub/org/demo/{config.json,tokenizer.json} hub/org/big/
    head -c 20000000 /dev/urandom >hub/org/big/model-00001-of-00002.safetensors
    head -c 18000001 /dev/urandom >hub/org/big/model-00002-of-00002.safetensors
    echo '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}' \
        >hub/org/big/model.safetensors.index.json
    requests=$PWD/requests
    python3 "$here/hub.py" "$PWD/hub" "$requests" "$PWD/address" 2>hub.err & hub_pid=$!
    trap 'kill $hub_pid 2>/dev/null; cd /; rm -rf "$work"' EXIT
    within 20 test -s address || { cat hub.err; exit 1; }
    hub=$(cat address)
    export HF_ENDPOINT=$hub HF_HOME=$work/hf HF_HUB_DOWNLOAD_TIMEOUT=3 HOME=$work
    unset HF_TOKEN HF_HUB_CACHE HF_HUB_OFFLINE TRANSFORMERS_OFFLINE XDG_CACHE_HOME
    unset http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY
}
faults() { curl -sS -m 5 -d "$1" "$hub/set"; }
calm() { faults '{"api": {}, "locate": {}, "files": {}, "reply": {}, "token": null}'; : >"$requests"; }
forget() { rm -rf "$HF_HOME"; calm; }
pull() { "$shoal" pull "$@"; }
blobs() { echo "$HF_HOME/hub/models--org--${1:-demo}/blobs"; }
snapshot() { echo "$HF_HOME/hub/models--org--${1:-demo}/snapshots/$commit"; }
same_files() { # MODEL
    local file
    for file in "$(snapshot "$1")"/*; do
        cmp "$file" "hub/org/$1/${file##*/}" || return 1
    done
}
whole() {
    local name=${1:-demo}
    [ "$(cat "$HF_HOME/hub/models--org--$name/refs/main")" = $commit ] || { echo "no ref"; return 1; }
    [ -e "$(snapshot "$name")/config.json" ] || { echo "no config.json"; return 1; }
    ls "$(blobs "$name")"/*.incomplete 2>/dev/null && { echo "incomplete files are left"; return 1; }
    same_files "$name"
}
# A file with its final name has the digest that is its name.
unfinished() {
    local file digest size
    [ ! -e "$(snapshot "${1:-demo}")/config.json" ] || { echo "it counts as complete"; return 1; }
    for file in "$(blobs "${1:-demo}")"/*; do
        digest=${file##*/}
        case ${#digest} in
        64) gives "$digest" sum256 "$file" || return 1 ;;
        40) size=$(stat -c %s "$file")
            gives "$digest" sum_git "$file" "$size" || return 1 ;;
        esac
    done
}
sum256() { sha256sum "$1" | cut -d' ' -f1; }
sum_git() { { printf 'blob %d\0' "$2"; cat "$1"; } | sha1sum | cut -d' ' -f1; }
survives() { forget; faults "$1"; exits 0 pull org/demo && whole; }
fails() {
    forget; faults "$2"; refuses 1 "$1" pull org/demo && unfinished || return 1
    calm; exits 0 pull org/demo && whole
}
