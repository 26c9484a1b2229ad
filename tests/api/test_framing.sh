#!/usr/bin/env bash
# Where one request ends and the next begins, compared to a parser that we did not write.
. "$(dirname "$0")/lib.sh"
command -v node >/dev/null || { skip "requests are framed like Node frames them" "node is missing"; done_testing; }
serve_api api || { echo "Bail out! the API did not start"; exit 1; }
node "$root/tests/api/framing.mjs" "$port"
