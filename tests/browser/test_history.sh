#!/usr/bin/env bash
# The figures that the dashboard computes from snapshots, without a browser.
. "$(dirname "$0")/../tap.sh"
command -v node >/dev/null || { skip "the dashboard's figures are right" "node is missing"; done_testing; }
work=$(mktemp -d /tmp/shoal-history-XXXXXX)
trap 'rm -rf "$work"' EXIT
cp "$root/web/dashboard/history.js" "$work/history.mjs"

# Snapshots arrive every second; when the page was loaded, the ranks had not reported for 5 s, and then they do.
cat >"$work/shares.mjs" <<'END'
import { rankRate } from './history.mjs';
const engine = (uptime_s, reported_s, compute_s) => ({ uptime_s, reported_s, ranks: [{ compute_s }] });
const share = (now, then) => rankRate(now, then, 0, 'compute_s');
const loaded = engine(100, 95, 40);
if (!(Math.abs(share(engine(101, 101, 44.5), loaded) - 0.75) < 1e-9)) throw new Error('not the time between reports');
if (!Number.isNaN(share(engine(101, 95, 40), loaded))) throw new Error('a share without a new report');
if (!Number.isNaN(share(engine(101, 101, 44), undefined))) throw new Error('a share without an older snapshot');
END
shares_are_of_the_time_between_reports() { node "$work/shares.mjs"; }
check "a rank's shares relate to the time between its reports" shares_are_of_the_time_between_reports
done_testing
