// A line plot over time with axes, and a crosshair that shows values for the pointer and the arrow keys.
import { h, svg, setText } from './dom.js';
import { clock, duration } from './format.js';

const HEIGHT = 132, LEFT = 54, RIGHT = 10, TOP = 8, BOTTOM = 20;
const X_STEPS = [60, 120, 300, 600, 900, 1200, 1800];
const CURRENT_MS = 15000, GONE_MS = 300000; // how long a value without successors is shown as it is, and dimmed
const GAP_MS = 12000; // points come every 5 s: one that is missing is a gap

// A round step such that about `want` of them cover `span`.
function roundStep(span, want) {
  const rough = span / want;
  const base = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].find((m) => m * base >= rough * 0.999) * base;
}

function ago(s) {
  return s === 0 ? 'now' : `−${s / 60} min`;
}

export class Plot {
  // series: [{name, label, color}]; format writes a value; the scale always reaches at least `floor`.
  constructor({ title, series, format, axis = format, floor = 1, ceiling = null, area = false }) {
    Object.assign(this, { title, series, format, axis, floor, ceiling, area });
    this.points = [];
    this.span = 300;
    this.cursor = null;
    this.width = 300;
    this.grid = svg('g', { class: 'grid' });
    this.lines = series.map((s, i) => svg('path', { class: `line ${s.color}`, 'data-i': i }));
    this.fill = svg('path', { class: `fill ${series[0].color}` });
    this.cross = svg('line', { class: 'cross', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
    this.dots = series.map((s) => svg('circle', { r: 3, class: `dot ${s.color}`, visibility: 'hidden' }));
    this.svg = svg('svg', { class: 'plot', role: 'img', tabindex: 0, height: HEIGHT, 'aria-label': title },
      this.grid, this.fill, ...this.lines, this.cross, ...this.dots);
    this.tip = h('div', { class: 'tip', hidden: true });
    this.el = h('div', { class: 'plot-box' }, this.svg, this.tip);
    this.listen();
  }

  listen() {
    this.svg.addEventListener('pointermove', (event) => {
      const box = this.svg.getBoundingClientRect();
      this.point(this.nearest(event.clientX - box.left));
    });
    this.svg.addEventListener('pointerleave', () => this.point(null));
    this.svg.addEventListener('blur', () => this.point(null));
    this.svg.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === 'Escape') this.point(null);
      const points = this.readable;
      if (step === undefined || points.length === 0) return;
      event.preventDefault();
      const i = this.cursor === null ? points.length : points.indexOf(this.cursor);
      this.point(points[Math.max(0, Math.min(points.length - 1, i + step))]);
    });
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width > 0 && width !== this.width) { this.width = width; this.draw(); }
    }).observe(this.el);
  }

  get shown() {
    const from = this.now - this.span * 1000;
    return this.points.filter((p) => p.at >= from);
  }

  // Points with at least one value.
  get readable() {
    return this.shown.filter((p) => this.series.some((s) => Number.isFinite(p[s.name])));
  }

  update(points, now, span) {
    Object.assign(this, { points, now, span });
    if (this.el.offsetParent !== null) this.draw();
  }

  x(at) {
    return LEFT + (this.width - LEFT - RIGHT) * (1 - (this.now - at) / 1000 / this.span);
  }

  y(value) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(1, value / this.top));
  }

  draw() {
    const shown = this.shown;
    let most = this.floor;
    for (const p of shown)
      for (const s of this.series) if (p[s.name] > most) most = p[s.name];
    const step = this.ceiling === null ? roundStep(most, 3) : this.ceiling / 4;
    this.top = this.ceiling ?? Math.ceil(most / step - 1e-9) * step;
    this.drawGrid(step);
    this.series.forEach((s, i) => this.lines[i].setAttribute('d', this.path(shown, s.name)));
    this.fill.setAttribute('d', this.area ? this.areaPath(shown) : '');
    const last = shown.at(-1);
    const says = this.series.map((s) => `${s.label} ${this.format(last?.[s.name] ?? NaN)}`).join(', ');
    this.svg.setAttribute('aria-label', `${this.title}: ${says}. Arrow keys read the plot.`);
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${HEIGHT}`);
    if (this.cursor !== null) this.point(shown.includes(this.cursor) ? this.cursor : null);
  }

  drawGrid(step) {
    const parts = [];
    for (let v = 0; v <= this.top * 1.0001; v += step) {
      const y = Math.round(this.y(v)) + 0.5;
      parts.push(svg('line', { x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y, class: v === 0 ? 'base' : null }),
        svg('text', { x: LEFT - 6, y: y + 4, 'text-anchor': 'end' }, this.axis(v)));
    }
    const pace = X_STEPS.find((s) => this.span / s <= (this.width - LEFT) / 70) ?? 3600;
    for (let s = 0; s <= this.span; s += pace) {
      const x = this.x(this.now - s * 1000);
      if (x - LEFT >= 20) parts.push(svg('text', { x, y: HEIGHT - 5, 'text-anchor': s === 0 ? 'end' : 'middle' }, ago(s)));
    }
    this.grid.replaceChildren(...parts);
  }

  // Leaves a gap where there is no value.
  path(shown, name) {
    let d = '', last = -Infinity;
    for (const p of shown) {
      if (!Number.isFinite(p[name])) { last = -Infinity; continue; }
      const at = `${this.x(p.at).toFixed(1)} ${this.y(p[name]).toFixed(1)}`;
      d += p.at - last < GAP_MS ? `L${at}` : `M${at}h.01`; // a point alone is a dot
      last = p.at;
    }
    return d;
  }

  areaPath(shown) {
    const base = this.y(0).toFixed(1);
    return this.path(shown, this.series[0].name).split('M').filter(Boolean).map((part) => {
      const spots = part.replace('h.01', '').split('L'), first = spots[0].split(' ')[0], last = spots.at(-1).split(' ')[0];
      return `M${first} ${base}L${spots.join('L')}L${last} ${base}Z`;
    }).join('');
  }

  nearest(px) {
    let best = null;
    for (const p of this.readable)
      if (best === null || Math.abs(this.x(p.at) - px) < Math.abs(this.x(best.at) - px)) best = p;
    return best;
  }

  point(p) {
    this.cursor = p;
    const hidden = p === null ? 'hidden' : 'visible';
    this.cross.setAttribute('visibility', hidden);
    this.tip.hidden = p === null;
    this.series.forEach((s, i) => {
      const known = p !== null && Number.isFinite(p[s.name]);
      this.dots[i].setAttribute('visibility', known ? 'visible' : 'hidden');
      if (!known) return;
      this.dots[i].setAttribute('cx', this.x(p.at));
      this.dots[i].setAttribute('cy', this.y(p[s.name]));
    });
    if (p === null) return;
    const x = this.x(p.at);
    this.cross.setAttribute('x1', x);
    this.cross.setAttribute('x2', x);
    this.tip.replaceChildren(h('b', null, clock(p.at)), ...this.series.map((s) =>
      h('span', null, h('i', { class: s.color }), `${s.label} ${this.format(p[s.name] ?? NaN)}`)));
    this.tip.style.left = `${Math.max(60, Math.min(this.width - 60, x))}px`;
    this.svg.setAttribute('aria-label', this.tip.textContent);
  }
}

// A card with one large number, smaller ones beside it and the plot below.
export class Gauge {
  // parts: [{label, value(history) -> text}]; the first is the large number and has no label. With fades(history), the
  // age in ms of what is shown, values that are no longer current are dimmed and then left out.
  constructor({ title, unit, parts, plot, fades = () => 0 }) {
    Object.assign(this, { parts, unit, fades });
    this.unitOut = h('span', { class: 'unit' }, unit);
    this.outs = parts.map((part, i) => h(i === 0 ? 'b' : 'span', { class: i === 0 ? 'big' : 'num' }, '–'));
    this.plot = new Plot({ title, ...plot });
    const keys = plot.series.length < 2 ? null : h('span', { class: 'keys' },
      plot.series.map((s) => h('span', null, h('i', { class: s.color }), s.label)));
    this.el = h('article', { class: 'card gauge', 'aria-label': title },
      h('header', null, h('h3', null, title), keys),
      h('p', { class: 'reading' }, this.outs[0], this.unitOut,
        h('span', { class: 'side' }, this.outs.slice(1).map((out, i) =>
          h('span', null, h('small', null, parts[i + 1].label), out)))),
      this.plot.el);
  }

  update(history, span) {
    const age = this.fades(history), gone = age > GONE_MS;
    this.parts.forEach((part, i) => {
      setText(this.outs[i], gone ? '–' : part.value(history));
      if (part.level) this.el.dataset.level = part.level(history);
    });
    this.el.classList.toggle('stale', age > CURRENT_MS);
    setText(this.unitOut, gone ? 'idle' : age > CURRENT_MS ? `${this.unit} · ${duration(age / 1000)} ago` : this.unit);
    this.plot.update(history.line, history.time, span);
  }
}
