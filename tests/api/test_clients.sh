#!/usr/bin/env bash
# The real client libraries with the demo model on two ranks. SHOAL_TEST_URL (and SHOAL_TEST_KEY) name a running server;
# without them one is started here.
. "$(dirname "$0")/lib.sh"
clients=$root/tests/api/clients

if ! why=$(npm_packages); then
    skip "the client libraries work" "$why"
    done_testing
fi
if [ -z "${SHOAL_TEST_URL:-}" ]; then
    export SHOAL_TEST_KEY=sk-test-4fZq81Lx0p
    port=$(free_port)
    (cd "$root" && SHOAL_API_KEY=$SHOAL_TEST_KEY exec "$shoal" serve --ranks 2 --port "$port" --runtime-dir "$work" \
        --pooling mean) >serve.log 2>&1 &
    serve_pid=$!; pids+=("$serve_pid")
    export SHOAL_TEST_SERVE=$serve_pid
    await /health/ready 200 || { echo "Bail out! no server"; cat serve.log; exit 1; }
    export SHOAL_TEST_URL="http://127.0.0.1:$port"
fi
# Node looks for packages from the folder of the importing file.
cp "$clients"/*.mjs "$root/build/npm/"
rc=0
for file in openai ai_sdk langchain openapi forms responses anthropic ollama instructor; do
    timeout 250 node "$root/build/npm/$file.mjs" || rc=1
done
if [ -n "${serve_pid:-}" ]; then
    stop "$serve_pid" || rc=1
    ! grep -iE 'assert|sanitizer|runtime error|leak' serve.log || rc=1
fi
[ $rc = 0 ] || tail -n 20 ./*.log 2>/dev/null | sed 's/^/# /'
exit $rc
