// The speed of the last generations, a bar for each.
import { h, setText, svg } from './dom.js';
import { count, dateTime, rate, seconds } from './format.js';

const SHOWN = 40, HEIGHT = 56, PITCH = 10, BAR = 7;

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];

export class Spark {
  constructor() {
    this.svg = svg('svg', { class: 'spark', role: 'img', viewBox: `0 0 ${SHOWN * PITCH} ${HEIGHT}`, preserveAspectRatio: 'none' });
    this.figures = ['median', 'slowest', 'fastest'].map((label) => ({ label, out: h('span', { class: 'num' }, '–') }));
    this.note = h('p', { class: 'soft tip-line' });
    this.el = h('article', { class: 'card generations', 'aria-label': 'Last 40 generations' },
      h('header', null, h('h3', null, 'Last 40 generations'),
        h('span', { class: 'keys' }, h('span', null, h('i', { class: 'c1' }), 'tok/s of each'))),
      h('p', { class: 'reading' }, h('span', { class: 'side' }, this.figures.map((f) =>
        h('span', null, h('small', null, f.label), f.out)))),
      this.svg, this.note);
    this.signature = '';
  }

  // The list of the snapshot, oldest first.
  update(list = []) {
    const signature = JSON.stringify(list.map((g) => [g.t, g.tps]));
    if (signature === this.signature) return;
    this.signature = signature;
    const speeds = list.map((g) => g.tps), top = Math.max(...speeds, 1);
    const values = list.length === 0 ? [] : [median(speeds), Math.min(...speeds), Math.max(...speeds)];
    this.figures.forEach((f, i) => setText(f.out, rate(values[i])));
    this.svg.setAttribute('aria-label', list.length === 0 ? 'No generations yet'
      : `Speed of the last ${list.length} generations: median ${rate(values[0])}`);
    this.svg.replaceChildren(...list.map((g, i) => this.bar(g, SHOWN - list.length + i, g.tps / top)));
    const last = list.at(-1);
    setText(this.note, last === undefined ? 'None yet.'
      : `Last: ${last.kind}, ${count(last.ctokens)} tokens in ${seconds(last.latency)}, ${rate(last.tps)}`);
  }

  bar(g, place, part) {
    const height = Math.max(2, part * HEIGHT);
    return svg('rect', { x: place * PITCH, y: HEIGHT - height, width: BAR, height, class: 'c1' },
      svg('title', null, `${dateTime(g.t * 1000)}: ${rate(g.tps)}, ${count(g.ctokens)} tokens in ${seconds(g.latency)} (${g.kind})`));
  }
}
