// The live figures, each with its history.
import { h, button } from './dom.js';
import { count, digits3, fixed, percent, seconds } from './format.js';
import { Gauge } from './plot.js';

const SPANS = [[60, '1 min'], [300, '5 min'], [900, '15 min']];
const ms = (x) => (Number.isFinite(x) ? digits3(x * 1e3) : '–');
const msAxis = (x) => (x >= 1 ? `${+x.toFixed(2)} s` : `${+(x * 1e3).toPrecision(3)} ms`);
const short = (x) => (x >= 1e4 ? `${+(x / 1e3).toFixed(1)} k` : `${+x.toPrecision(3)}`);

// A quarter full is a warning; when it is nearly full, requests will soon be refused.
function queueLevel(waiting, max) {
  if (!(waiting > 0)) return 'green';
  return waiting >= 0.8 * max ? 'red' : waiting >= 0.25 * max ? 'amber' : 'green';
}

function gauges(queue) {
  const percentiles = (title, name, floor) => ({
    title, unit: 'ms median',
    parts: [{ value: (x) => ms(x.latest(`${name}50`)) },
      { label: 'p95', value: (x) => ms(x.latest(`${name}95`)) }],
    plot: { format: seconds, axis: msAxis, floor, series: [
      { name: `${name}50`, label: 'median', color: 'c1' }, { name: `${name}95`, label: 'p95', color: 'c2' }] },
  });
  const rate = (title, name, extra) => ({
    title, unit: 'last 10 s', parts: [{ value: (x) => percent(x.latest(name)) }, ...extra],
    plot: { format: (v) => percent(v, 1), axis: (v) => percent(v), ceiling: 1, area: true,
      series: [{ name, label: title.toLowerCase(), color: 'c3' }] },
  });
  return [
    { title: 'Generated tokens', unit: 'tok/s now',
      parts: [{ value: (x) => fixed(x.last('tokens') ?? 0) },
        { label: 'average', value: (x) => fixed(x.average('tokens')) },
        { label: 'peak', value: (x) => fixed(x.peak) }],
      plot: { format: (v) => `${fixed(v)} tok/s`, axis: short, floor: 4, area: true,
        series: [{ name: 'tokens', label: 'generated', color: 'c1' }] } },
    percentiles('Time to first token', 'ttft', 0.02),
    percentiles('Inter-token latency', 'inter', 0.002),
    { title: 'Queue', unit: 'waiting',
      parts: [{ value: (x) => count(x.last('waiting')), level: (x) => queueLevel(x.last('waiting'), queue.max) },
        { label: 'capacity', value: () => count(queue.max) }],
      plot: { format: count, axis: short, floor: 4, area: true,
        series: [{ name: 'waiting', label: 'waiting', color: 'c-level' }] } },
    { title: 'Batch', unit: 'requests running',
      parts: [{ value: (x) => count(x.last('running')) },
        { label: 'slots', value: () => count(queue.slots) },
        { label: 'tokens per step', value: (x) => fixed(x.last('batch')) }],
      plot: { format: (v) => fixed(v), axis: short, floor: 4, series: [
        { name: 'running', label: 'requests', color: 'c1' }, { name: 'batch', label: 'tokens per step', color: 'c2' }] } },
    { title: 'Prompt tokens computed', unit: 'tok/s now',
      parts: [{ value: (x) => fixed(x.last('prompt') ?? 0) },
        { label: 'average', value: (x) => fixed(x.average('prompt')) }],
      plot: { format: (v) => `${fixed(v)} tok/s`, axis: short, floor: 4, area: true,
        series: [{ name: 'prompt', label: 'computed', color: 'c2' }] } },
    rate('Cache hit rate', 'cache', [{ label: 'since start', value: () => percent(queue.cache) }]),
    rate('Speculative tokens accepted', 'drafts', [{ label: 'model', value: () => percent(queue.modelDrafts) },
      { label: 'MTP', value: () => percent(queue.mtpDrafts) },
      { label: 'repeats', value: () => percent(queue.repeatedDrafts) }]),
    { ...rate('KV blocks in use', 'kv', [{ label: 'blocks', value: () => count(queue.blocks) }]), unit: 'now' },
  ];
}

export class Live {
  constructor() {
    this.now = {};
    this.span = 60;
    this.gauges = gauges(this.now).map((spec) => new Gauge(spec));
    this.choices = SPANS.map(([s, label]) => button(label, () => this.setSpan(s), { class: 'small', 'data-s': s }));
    this.el = h('section', { id: 'live', 'aria-labelledby': 'live-title' },
      h('header', { class: 'row' }, h('h2', { id: 'live-title' }, 'Live'),
        h('div', { class: 'segments', role: 'group', 'aria-label': 'Time shown' }, this.choices)),
      h('div', { class: 'gauge-grid' }, this.gauges.map((gauge) => gauge.el)));
    this.mark();
  }

  setSpan(span) {
    this.span = span;
    this.mark();
    if (this.history !== undefined) this.draw();
  }

  mark() {
    for (const choice of this.choices) choice.setAttribute('aria-pressed', String(Number(choice.dataset.s) === this.span));
  }

  update(history, engine) {
    this.history = history;
    const c = engine?.counts ?? {};
    Object.assign(this.now, {
      max: engine?.waiting_max, slots: engine?.slots, blocks: engine?.kv?.blocks,
      cache: c.prompt_tokens > 0 ? c.cached_tokens / c.prompt_tokens : NaN,
      modelDrafts: c.drafts_model_tried > 0 ? c.drafts_model_kept / c.drafts_model_tried : NaN,
      mtpDrafts: c.drafts_mtp_tried > 0 ? c.drafts_mtp_kept / c.drafts_mtp_tried : NaN,
      repeatedDrafts: c.drafts_repeated_tried > 0 ? c.drafts_repeated_kept / c.drafts_repeated_tried : NaN,
    });
    this.draw();
  }

  draw() {
    const now = Date.now();
    for (const gauge of this.gauges) gauge.update(this.history, now, this.span);
  }
}
