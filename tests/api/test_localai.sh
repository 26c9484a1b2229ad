#!/usr/bin/env bash
# A backend of LocalAI, driven by two gRPC libraries; the answers are held against those of the HTTP API.
. "$(dirname "$0")/lib.sh"
clients=$root/tests/api/clients
python=/usr/bin/python3 # Debian's packages are not for other ones

python_lacks() { # says what
    command -v protoc >/dev/null || { echo "protoc is missing (protobuf-compiler)"; return; }
    "$python" -c 'import grpc' 2>/dev/null || echo "python3-grpcio is missing"
}

export LOCALAI_GRPC_AUTH_TOKEN=tok-4fZq81Lx0pQ77 SHOAL_OFFLINE=1
SHOAL_TEST_GRPC=127.0.0.1:$(free_port)
MLX_DISTRIBUTED_ADDR=$SHOAL_TEST_GRPC SHOAL_RUNTIME_DIR=$work "$shoal" worker mlx-distributed >localai.log 2>&1 &
localai=$!; pids+=("$localai")
port=$(free_port)
cat >demo.yaml <<END
name: fox
backend: mlx-distributed
parameters: {model: $root/models/demo, max_tokens: 7, temperature: 0}
template: {use_tokenizer_template: true}
threads: 4
END
"$shoal" serve --model demo.yaml --port "$port" --runtime-dir "$work" >serve.log 2>&1 &
serve=$!; pids+=("$serve")
await /health/ready 200 || { echo "Bail out! no server"; cat serve.log; exit 1; }
within 60 grep -q "listening on" localai.log || { echo "Bail out! no backend"; cat localai.log; exit 1; }

check "an address that is none is refused" refuses 1 "nowhere" "$shoal" localai --addr nowhere
check "another kind of worker is refused" refuses 1 "'vllm' is not a kind of worker" "$shoal" worker vllm
check "a YAML file names the model" prints '"id":"fox"' curl -s "$(url /v1/models)"
check "it sets defaults for requests" prints '"completion_tokens":7' curl -s "$(url /v1/completions)" \
    -d '{"prompt":"Once"}'
check "what has no effect is said" has serve.log "demo.yaml:5: 'threads' has no effect"
echo "tmperature: 1" >bad.yaml
check "a key that nobody knows is an error" refuses 1 "bad.yaml:1: unknown key 'tmperature'" \
    "$shoal" serve --model bad.yaml
export SHOAL_TEST_GRPC SHOAL_TEST_URL="http://127.0.0.1:$port" SHOAL_TEST_MODEL="$root/models/demo"
export SHOAL_TEST_RERANKER=$root/tests/data/encoders/bert-rerank
export SHOAL_TEST_TOKEN=$LOCALAI_GRPC_AUTH_TOKEN SHOAL_TEST_SERVE=$localai SHOAL_TEST_PROTO=$root/src/grpc/backend.proto
why=$(python_lacks)
if [ -z "$why" ]; then
    protoc --python_out="$work" -I"$root/src/grpc" backend.proto
    PYTHONPATH=$work timeout 500 "$python" "$clients/localai.py" >python.out; python_rc=$?
    grep -v '^1\.\.' python.out
    check "all claims of python3-grpcio hold" [ $python_rc = 0 ]
else
    skip "all claims of python3-grpcio hold" "$why"
fi
if why=$(npm_packages); then
    cp "$clients/harness.mjs" "$clients/localai.mjs" "$root/build/npm/"
    timeout 300 node "$root/build/npm/localai.mjs" >node.out; node_rc=$?
    grep -v '^1\.\.' node.out
    check "all claims of grpc-js hold" [ $node_rc = 0 ]
else
    skip "all claims of grpc-js hold" "$why"
fi

stop "$localai"; rc=$?
check "it stops cleanly" [ $rc = 0 ]
stop "$serve"
check "no secret and no complaint is in its log" not grep -iE "$SHOAL_TEST_TOKEN|assert|sanitizer:|runtime error|leak" \
    localai.log
done_testing
