// The live figures, each with its history.
import { h, button } from './dom.js';
import { count, digits3, fixed, percent, rate as speed, seconds } from './format.js';
import { Gauge } from './plot.js';
import { Spark } from './spark.js';

const SPANS = [[300, '5 min'], [900, '15 min'], [3600, '60 min']];
const SPAN = 'shoal.span';
const ms = (x) => (Number.isFinite(x) ? digits3(x * 1e3) : '–');
const perSecond = (x) => fixed(x, x >= 999.95 ? 0 : 1);
const msAxis = (x) => (x >= 1 ? `${+x.toFixed(2)} s` : `${+(x * 1e3).toPrecision(3)} ms`);
const short = (x) => (x >= 1e4 ? `${+(x / 1e3).toFixed(1)} k` : `${+x.toPrecision(3)}`);

// A quarter full is a warning; when it is nearly full, requests will soon be refused.
function queueLevel(waiting, max) {
  if (!(waiting > 0)) return 'green';
  return waiting >= 0.8 * max ? 'red' : waiting >= 0.25 * max ? 'amber' : 'green';
}

function gauges(queue) {
  const percentiles = (title, name, floor) => ({
    title, unit: 'ms median', fades: (x) => x.latest(`${name}_p50_s`).age,
    parts: [{ value: (x) => ms(x.latest(`${name}_p50_s`).value) },
      { label: 'p95', value: (x) => seconds(x.latest(`${name}_p95_s`).value) }],
    plot: { format: seconds, axis: msAxis, floor, series: [
      { name: `${name}_p50_s`, label: 'median', color: 'c1' }, { name: `${name}_p95_s`, label: 'p95', color: 'c2' }] },
  });
  const rate = (title, name, extra) => ({
    title, unit: 'last 10 s', fades: (x) => x.latest(name).age,
    parts: [{ value: (x) => percent(x.latest(name).value) }, ...extra],
    plot: { format: (v) => percent(v, 1), axis: (v) => percent(v), ceiling: 1, area: true,
      series: [{ name, label: title.toLowerCase(), color: 'c3' }] },
  });
  return [
    { title: 'Generated tokens', unit: 'tok/s now',
      parts: [{ value: (x) => perSecond(x.last('generated_tokens_per_s')) },
        { label: 'last minute', value: (x) => speed(x.average('generated_tokens_per_s')) },
        { label: 'peak', value: (x) => speed(x.peak('generated_tokens_per_s')) }],
      plot: { format: speed, axis: short, floor: 4, area: true,
        series: [{ name: 'generated_tokens_per_s', label: 'generated', color: 'c1' }] } },
    percentiles('Time to first token', 'ttft', 0.02),
    percentiles('Inter-token latency', 'inter_token', 0.002),
    { title: 'Queue', unit: 'requests waiting',
      parts: [{ value: (x) => count(x.last('waiting')), level: (x) => queueLevel(x.last('waiting'), queue.max) },
        { label: 'capacity', value: () => count(queue.max) }],
      plot: { format: (v) => `${count(v)} requests`, axis: short, floor: 4, area: true,
        series: [{ name: 'waiting', label: 'waiting', color: 'c-level' }] } },
    { title: 'Batch', unit: 'requests running',
      parts: [{ value: (x) => count(x.last('running')) },
        { label: 'slots', value: () => count(queue.slots) },
        { label: 'tokens per step', value: (x) => fixed(x.last('tokens_per_step')) }],
      plot: { format: (v) => fixed(v), axis: short, floor: 4, series: [
        { name: 'running', label: 'requests', color: 'c1' }, { name: 'tokens_per_step', label: 'tokens per step', color: 'c2' }] } },
    { title: 'Prompt tokens computed', unit: 'tok/s now',
      parts: [{ value: (x) => perSecond(x.last('prompt_tokens_per_s')) },
        { label: 'last minute', value: (x) => speed(x.average('prompt_tokens_per_s')) }],
      plot: { format: speed, axis: short, floor: 4, area: true,
        series: [{ name: 'prompt_tokens_per_s', label: 'computed', color: 'c2' }] } },
    rate('Cache hit rate', 'cache_hit_rate', [{ label: 'since start', value: () => percent(queue.cache) }]),
    rate('Speculative tokens accepted', 'drafts_accepted', [{ label: 'model', value: () => percent(queue.modelDrafts) },
      { label: 'MTP', value: () => percent(queue.mtpDrafts) },
      { label: 'repeats', value: () => percent(queue.repeatedDrafts) }]),
    { ...rate('KV blocks in use', 'kv_used', [{ label: 'blocks', value: () => count(queue.blocks) }]), unit: 'now' },
  ];
}

export class Live {
  constructor() {
    this.now = {};
    this.span = SPANS.map(([s]) => s).find((s) => s === Number(localStorage.getItem(SPAN))) ?? 300;
    this.spark = new Spark();
    this.model = h('select', { 'aria-label': 'Model of the plots', hidden: true, onchange: () => this.onmodel?.(this.model.value) });
    this.gauges = gauges(this.now).map((spec) => new Gauge(spec));
    this.choices = SPANS.map(([s, label]) => button(label, () => this.setSpan(s), { class: 'small', 'data-s': s }));
    this.el = h('section', { id: 'live', 'aria-labelledby': 'live-title' },
      h('header', { class: 'row' }, h('h2', { id: 'live-title' }, 'Live'), this.model,
        h('div', { class: 'segments', role: 'group', 'aria-label': 'Time shown' }, this.choices)),
      h('div', { class: 'gauge-grid' }, this.gauges.map((gauge) => gauge.el), this.spark.el));
    this.mark();
  }

  setSpan(span) {
    this.span = span;
    localStorage.setItem(SPAN, String(span));
    this.mark();
    if (this.history !== undefined) this.draw();
  }

  mark() {
    for (const choice of this.choices) choice.setAttribute('aria-pressed', String(Number(choice.dataset.s) === this.span));
  }

  // The names of models that have figures, and the one that is shown.
  choose(names, name) {
    this.model.hidden = names.length < 2;
    if (names.join('\n') !== [...this.model.options].map((o) => o.value).join('\n'))
      this.model.replaceChildren(...names.map((n) => h('option', { value: n }, n)));
    this.model.value = name;
  }

  // engine: of the model that is shown; undefined if it is not known.
  update(history, engine, generations) {
    this.history = history;
    this.spark.update(generations);
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
    for (const gauge of this.gauges) gauge.update(this.history, this.span);
  }
}
