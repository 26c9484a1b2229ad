// The snapshots over time. Counters become rates, histograms become percentiles over a sliding window.

const KEEP = 900;
const WINDOW_MS = 10000; // of the percentiles
const AVERAGE_MS = 60000;

const delta = (now, then, path) => {
  const at = (snapshot) => path.split('.').reduce((obj, key) => obj?.[key], snapshot.engine) ?? NaN;
  return at(now) - at(then);
};

// The value below which a fraction p of the events between two histograms lies; linear within a bucket.
function percentile(now, then, p) {
  const total = now.count - (then?.count ?? 0);
  if (!(total > 0)) return NaN;
  let low = 0, below = 0;
  for (let i = 0; i < now.buckets.length; i++) {
    const [bound, sum] = now.buckets[i];
    const upto = sum - (then?.buckets?.[i]?.[1] ?? 0);
    if (upto >= p * total) {
      const share = upto === below ? 1 : (p * total - below) / (upto - below);
      return low + share * (bound - low);
    }
    low = bound;
    below = upto;
  }
  return low;
}

// The growth of a rank's counter per second, since an older snapshot. Ranks report less often than snapshots arrive,
// so the time between the two reports counts, not that between the snapshots.
export function rankRate(engine, before, index, name) {
  const took = engine?.reported_s - before?.reported_s;
  const grew = engine?.ranks?.[index]?.[name] - before?.ranks?.[index]?.[name];
  return took > 0 ? grew / took : NaN;
}

// A restarted engine counts from zero again.
function isRestarted(engine, old) {
  return engine.uptime_s < old.uptime_s || engine.counts?.requests < old.counts?.requests;
}

export class History {
  constructor() {
    this.snapshots = []; // {at, snapshot}, for deltas over the window
    this.points = []; // {at, values by name}
    this.peak = 0;
  }

  add(at, snapshot) {
    const last = this.snapshots.at(-1);
    const engine = snapshot.engine;
    if (engine === null || engine === undefined) {
      this.snapshots = [];
      this.push({ at });
      return;
    }
    if (last !== undefined && isRestarted(engine, last.snapshot.engine)) this.snapshots = [];
    this.snapshots.push({ at, snapshot });
    while (this.snapshots.length > 2 && at - this.snapshots[1].at > WINDOW_MS) this.snapshots.shift();
    const then = this.snapshots.at(-2);
    this.push(then === undefined ? { at } : this.point(at, snapshot, then));
  }

  point(at, snapshot, then) {
    const engine = snapshot.engine, old = this.snapshots[0].snapshot;
    const took = delta(snapshot, then.snapshot, 'uptime_s') || (at - then.at) / 1000;
    const rate = (path) => delta(snapshot, then.snapshot, path) / took;
    const hist = (name, p) => percentile(engine.histograms?.[name] ?? {}, old.engine.histograms?.[name], p);
    const share = (part, whole) => delta(snapshot, old, part) / (delta(snapshot, old, whole) || NaN);
    const steps = delta(snapshot, then.snapshot, 'counts.steps');
    const tokens = rate('counts.answer_tokens');
    this.peak = Math.max(this.peak, tokens || 0);
    return {
      at, tokens,
      prompt: rate('counts.prompt_tokens') - rate('counts.cached_tokens'),
      ttft50: hist('ttft_seconds', 0.5), ttft95: hist('ttft_seconds', 0.95),
      inter50: hist('inter_token_seconds', 0.5), inter95: hist('inter_token_seconds', 0.95),
      running: engine.running,
      batch: steps > 0 ? delta(snapshot, then.snapshot, 'histograms.batch_tokens.sum') / steps : 0,
      waiting: engine.waiting,
      cache: share('counts.cached_tokens', 'counts.prompt_tokens'),
      drafts: share('counts.drafts_kept', 'counts.drafts_tried'),
      kv: engine.kv?.blocks > 0 ? 1 - engine.kv.free / engine.kv.blocks : NaN,
    };
  }

  push(point) {
    this.points.push(point);
    if (this.points.length > KEEP) this.points.shift();
  }

  // The snapshot from about ten seconds ago, for the rates of ranks.
  get before() {
    return this.snapshots[0];
  }

  last(name) {
    return this.points.at(-1)?.[name];
  }

  // The newest known value: percentiles exist only while requests finish.
  latest(name) {
    for (let i = this.points.length - 1; i >= 0; i--)
      if (Number.isFinite(this.points[i][name])) return this.points[i][name];
    return NaN;
  }

  average(name, span = AVERAGE_MS) {
    const from = (this.points.at(-1)?.at ?? 0) - span;
    const values = this.points.filter((p) => p.at >= from && Number.isFinite(p[name])).map((p) => p[name]);
    return values.length === 0 ? NaN : values.reduce((a, b) => a + b, 0) / values.length;
  }
}
