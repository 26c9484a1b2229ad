#!/usr/bin/env bash
# A hub that refuses, or that describes a model wrongly: what the user is told, and that nothing gets into the cache.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { skip "a pull survives a bad hub" "python3 is missing"; done_testing; }
scratch
hub_start

needs_token() {
    forget; faults '{"token": {"value": "t0ken"}}'
    refuses 1 "has no public model org/demo \(401\): check the spelling; .* set HF_TOKEN" pull org/demo &&
        HF_TOKEN=wrong refuses 1 "refuses the token for org/demo \(403\)" pull org/demo &&
        HF_TOKEN=t0ken exits 0 pull org/demo && whole && token_stays_here
}
token_stays_here() { # every request to the hub had it, none to the other host
    grep -q '^other GET' "$requests" && ! grep '^other.*Bearer' "$requests" &&
        grep -q '^hub HEAD.*auth=Bearer:t0ken' "$requests"
}
token_in_file() {
    forget; faults '{"token": {"value": "t0ken"}}'; mkdir -p "$HF_HOME"; echo t0ken >"$HF_HOME/token"
    exits 0 pull org/demo && whole
}
token_of_odd_bytes() { HF_TOKEN=$'a\r\nX: y' refuses 1 "HF_TOKEN. has spaces or other characters" pull org/demo; }
token_in_the_clear() { # another machine without TLS does not get it
    calm; HF_TOKEN=t0ken HF_ENDPOINT=http://127.0.0.3:9 \
        refuses 1 "token is not sent to http://127.0.0.3:9" pull org/demo
}
gated() {
    forget; faults '{"token": {"value": "t0ken", "gated": true}}'
    refuses 1 "org/demo is gated: accept its terms at $hub/org/demo, and set HF_TOKEN" pull org/demo &&
        HF_TOKEN=x refuses 1 "is gated, and the account of this token has no access: accept the terms at" pull org/demo
}
absent() {
    calm; refuses 1 "$hub has no model org/none \(404\)" pull org/none &&
        refuses 1 "org/demo has no revision 'v9'" pull org/demo@v9
}
bad_names() {
    local name
    calm
    for name in demo org/demo/x ../demo org/.. "org/demo@../x" "org/de mo" "" org/ /demo org/demo@; do
        refuses 2 "is not the name of a model on the hub|usage" pull "$name" || { echo "'$name'"; return 1; }
    done
    [ ! -s "$requests" ]
}
nobody_there() { HF_ENDPOINT=http://127.0.0.1:9 refuses 1 "127.0.0.1: Failed to connect" pull org/demo; }
proxies() { # of the environment
    forget; http_proxy=http://127.0.0.1:9 refuses 1 "Failed to connect to 127.0.0.1 port 9" pull org/demo &&
        http_proxy=http://127.0.0.1:9 no_proxy=127.0.0.1,127.0.0.2 exits 0 pull org/demo && whole
}
bad_endpoint() { refuses 1 "must be an address such as" pull org/demo --hf-endpoint ftp://x; }
offline() {
    forget; refuses 1 "offline: model 'org/demo' not found: no such folder" pull org/demo --offline &&
        HF_HUB_OFFLINE=1 refuses 1 "^shoal: offline" pull org/demo && [ ! -s "$requests" ]
}

# Descriptions.
lies() { fails "$1" "$(jq -cn --arg body "$2" '{reply: {body: $body, times: 1}}')"; }
file='"rfilename": "model.safetensors", "size": 9'
listing() { printf '{"sha": "%s", "siblings": [{"rfilename": "config.json", "size": 2, "blobId": "%s"}, %s]}' \
    "$commit" "$commit" "$1"; }
wrong_descriptions() {
    lies "line 1" '{"sha": ' && lies "'sha' must be a commit" '{"sha": "../../x", "siblings": []}' &&
        lies "'siblings' must be a list" '{"sha": "'$commit'"}' &&
        lies "has no config.json" '{"sha": "'$commit'", "siblings": []}' &&
        lies "model.safetensors: 'sha256' is missing|'sha256'" "$(listing "{$file, \"lfs\": {}}")" &&
        lies "is not a digest" "$(listing "{$file, \"blobId\": \"../../../etc/passwd\"}")" &&
        lies "'size'" "$(listing "{\"rfilename\": \"model.safetensors\", \"blobId\": \"$commit\"}")" &&
        lies "no \*.safetensors" "$(listing '{"rfilename": "../model.safetensors"}')"
}
outside() { # names that leave the folder are not taken, whatever else is listed
    local body
    forget; body=$(curl -s "$hub/api/models/org/demo/revision/main" | jq -c '.siblings += [
        {"rfilename": "../../../model-1-of-2.safetensors", "size": 1, "blobId": .sha},
        {"rfilename": "/etc/model-1-of-2.safetensors", "size": 1, "blobId": .sha},
        {"rfilename": "chat_templates/../x.jinja", "size": 1, "blobId": .sha},
        {"rfilename": "chat_templates/\u0001.jinja", "size": 1, "blobId": .sha}]')
    calm; faults "$(jq -cn --arg body "$body" '{reply: {body: $body}}')"
    exits 0 pull org/demo && whole
}
huge() {
    forget; jq -cn --arg c $commit '{reply: {body: ({sha: $c, siblings: [range(300000) |
        {rfilename: "data/some-long-name-of-a-file-\(.).parquet", size: 1}]} | tojson)}}' >huge.json
    curl -sS -m 20 -d @huge.json "$hub/set"
    refuses 1 "description of the model is larger than 16 MiB" pull org/demo
}
gzipped() { survives '{"reply": {"gzip": true}}' && survives '{"reply": {"chunked": true}}'; }

check "a private model needs the right token, and no other host gets it" needs_token
check "the token may be in the file of the Hugging Face tools" token_in_file
check "a token cannot add headers" token_of_odd_bytes
check "a token is not sent unencrypted to another machine" token_in_the_clear
check "a gated model says where to accept its terms" gated
check "a model or revision that does not exist is named" absent
check "what cannot be a name is refused without asking anybody" bad_names
check "a hub that cannot be reached is an error at once" nobody_there
check "proxies of the environment are used" proxies
check "an endpoint that is no address is refused" bad_endpoint
check "offline, nothing is asked for" offline
check "wrong descriptions are refused, each with what is wrong" wrong_descriptions
check "names that would leave the folder are not taken" outside
check "a description without end is not read to its end" huge
check "compressed and chunked descriptions are read" gzipped
done_testing
