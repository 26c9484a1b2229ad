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
const engine = (uptime_s, reported_s, compute_s) => ({ uptime_s, reported_s, ranks: [{ rank: 0, compute_s }] });
const share = (now, then) => rankRate(now, then, 0, 'compute_s');
const loaded = engine(100, 95, 40);
if (!(Math.abs(share(engine(101, 101, 44.5), loaded) - 0.75) < 1e-9)) throw new Error('not the time between reports');
if (!Number.isNaN(share(engine(101, 95, 40), loaded))) throw new Error('a share without a new report');
if (!Number.isNaN(share(engine(101, 101, 44), undefined))) throw new Error('a share without an older snapshot');
END
shares_are_of_the_time_between_reports() { node "$work/shares.mjs"; }
check "a rank's shares relate to the time between its reports" shares_are_of_the_time_between_reports

# The server keeps the first figures of each 5 s; a page that was open all the time must have the same points as one
# that loads them, or a reload would change the plots.
cat >"$work/points.mjs" <<'END'
import { History } from './history.mjs';
const must = (truth, what) => { if (!truth) throw new Error(what); };
const start = Math.floor(Date.now() / 5000) * 5 - 4000;
const figures = (s) => ({ time: start + s, generated_tokens_per_s: s, ttft_p50_s: s < 3900 ? s / 1000 : null });
const snapshot = (s) => ({ time: start + s, engine: null,
  models: [{ name: 'other', now: figures(7) }, { name: 'm', now: figures(s) }] });
const open = new History();
for (let s = 0; s <= 4002; s++) open.add(snapshot(s), 'm');
const fields = ['time', 'generated_tokens_per_s', 'ttft_p50_s'], kept = [];
for (let s = 405; s <= 4000; s += 5) kept.push(fields.map((name) => figures(s)[name]));
const loaded = new History();
loaded.add(snapshot(4002), 'm');
loaded.load({ fields, points: kept });
const shape = (history) => JSON.stringify(history.line.map((p) => [p.at, p.generated_tokens_per_s]));
must(shape(open) === shape(loaded), 'the points differ');
must(loaded.line.length === kept.length + 1, 'the newest figures are not at the end of the line');
must(open.points.at(-1).at - open.points[0].at <= 3600000, 'more than an hour is kept');
must(open.peak('generated_tokens_per_s') === 4002, 'the peak');
must(Math.abs(open.latest('generated_tokens_per_s').age) < 1, 'a figure of now has an age');
const old = open.latest('ttft_p50_s');
must(old.value === 3.895 && old.age > 100000, `an old percentile is ${old.age} ms old`);
must(open.latest('nothing').age === Infinity, 'a figure that never was has an age');
open.add({ time: start + 4003, engine: null, models: [{ name: 'm', now: null }] }, 'm');
must(Number.isNaN(open.last('generated_tokens_per_s')), 'a model that does not run has figures');
END
pages_have_the_points_of_the_server() { node "$work/points.mjs"; }
check "a page that stayed open and one that was loaded now show the same points" pages_have_the_points_of_the_server
done_testing
