// The figures of one model over the last hour. The server keeps them: they are loaded once, and the snapshots go on from
// there, so that a reload shows the same plots.

const HOUR_MS = 3600000;
const STEP_MS = 5000; // between two points
const WINDOW_MS = 10000; // of the rates of ranks, and how long a percentile is current
const AVERAGE_MS = 60000;

// The growth of a rank's counter per second, since an older snapshot. Ranks report less often than snapshots arrive,
// so the time between the two reports counts, not that between the snapshots.
export function rankRate(engine, before, number, name) {
  const of = (e) => e?.ranks?.find((r) => r.rank === number)?.[name];
  const took = engine?.reported_s - before?.reported_s;
  return took > 0 ? (of(engine) - of(before)) / took : NaN;
}

// A restarted engine counts from zero again.
function isRestarted(engine, old) {
  return engine.uptime_s < old.uptime_s || engine.counts?.requests < old.counts?.requests;
}

const slot = (at) => Math.floor(at / STEP_MS);

export class History {
  constructor() {
    this.points = []; // {at, figures by name}
    this.now = null; // the newest figures; null: the model does not run
    this.snapshots = []; // {at, snapshot}, for the rates of ranks
    this.skew = Infinity; // of this machine's clock to the server's
  }

  // The response of /metrics/history.
  load({ fields, points }) {
    this.points = points.map((row) => {
      const point = { at: row[0] * 1000 };
      fields.forEach((name, i) => { if (i > 0) point[name] = row[i] ?? NaN; });
      return point;
    });
    if (this.now !== null) this.keep(this.now);
  }

  // The clock of the server, which the times of all points are of.
  get time() {
    return this.skew === Infinity ? Date.now() : Date.now() - this.skew;
  }

  // `name` is that of the model whose figures are shown.
  add(snapshot, name) {
    const figures = snapshot.models?.find((m) => m.name === name)?.now ?? null;
    this.skew = Math.min(this.skew, Date.now() - snapshot.time * 1000);
    this.now = figures === null ? null : { ...figures, at: figures.time * 1000 };
    if (this.now !== null) this.keep(this.now);
    this.addRanks(snapshot);
  }

  // As the server does: the first figures of each step are its point.
  keep(point) {
    if (this.points.length === 0 || slot(point.at) > slot(this.points.at(-1).at)) this.points.push(point);
    while (point.at - this.points[0].at > HOUR_MS) this.points.shift();
  }

  addRanks(snapshot) {
    const at = Date.now(), last = this.snapshots.at(-1), engine = snapshot.engine;
    if (engine === null || engine === undefined) { this.snapshots = []; return; }
    if (last !== undefined && isRestarted(engine, last.snapshot.engine)) this.snapshots = [];
    this.snapshots.push({ at, snapshot });
    while (this.snapshots.length > 2 && at - this.snapshots[1].at > WINDOW_MS) this.snapshots.shift();
  }

  // Another model, or another server.
  clear() {
    this.points = [];
    this.now = null;
    this.skew = Infinity;
  }

  // The snapshot from about ten seconds ago, for the rates of ranks.
  get before() {
    return this.snapshots[0];
  }

  // The points and, at their end, the newest figures.
  get line() {
    const last = this.points.at(-1);
    return this.now === null || this.now.at <= last?.at ? this.points : [...this.points, this.now];
  }

  last(name) {
    return this.now?.[name] ?? NaN;
  }

  // The newest known value and how old it is: percentiles exist only while requests finish.
  latest(name) {
    const value = this.last(name);
    if (Number.isFinite(value)) return { value, age: 0 };
    for (let i = this.points.length - 1; i >= 0; i--)
      if (Number.isFinite(this.points[i][name])) return { value: this.points[i][name], age: this.time - this.points[i].at };
    return { value: NaN, age: Infinity };
  }

  average(name, span = AVERAGE_MS) {
    const from = this.time - span;
    const values = this.line.filter((p) => p.at >= from && Number.isFinite(p[name])).map((p) => p[name]);
    return values.length === 0 ? NaN : values.reduce((a, b) => a + b, 0) / values.length;
  }

  peak(name) {
    return this.line.reduce((most, p) => (p[name] > most ? p[name] : most), 0);
  }
}
