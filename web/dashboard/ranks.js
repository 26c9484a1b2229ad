// A card for each rank: memory, CPU, temperature and power if the system reports them, tokens, compute and collectives.
import { h, setText } from './dom.js';
import { bytes, count, digits3, fixed, percent, since } from './format.js';
import { devicesOf, layersOf, roleOf, shareOf } from './cluster.js';
import { rankRate } from './history.js';

const MEMORY = [['weights', 'Weights'], ['kv', 'KV cache'], ['rest', 'Other use'], ['free', 'Free']];

function bar(names, label) {
  const parts = names.map(([name]) => h('i', { class: name }));
  const el = h('div', { class: 'bar', role: 'img', 'aria-label': label }, parts);
  return {
    el,
    set(values) {
      const total = values.reduce((a, b) => a + b, 0) || 1;
      parts.forEach((part, i) => { part.style.flexGrow = String(values[i] / total); });
      el.setAttribute('aria-label', `${label}: ${names.map(([, text], i) =>
        `${text} ${percent(values[i] / total)}`).join(', ')}`);
    },
  };
}

function legend(names) {
  const outs = names.map(() => h('span', { class: 'num' }, '–'));
  return {
    outs,
    el: h('ul', { class: 'legend' }, names.map(([name, text], i) =>
      h('li', null, h('i', { class: name }), h('span', null, text), outs[i]))),
  };
}

const WORK = [['compute', 'Compute'], ['collective', 'Collectives'], ['idle', 'Idle']];
const ROWS = ['CPU', 'Temperature', 'Power', 'Tokens computed', 'Share of the model', 'Heads, FFN, vocabulary', 'RDMA device'];

const TONES = { online: 'good', back: 'warn', loading: 'warn', lost: 'bad', unknown: '' };

class RankCard {
  constructor(rank) {
    this.state = h('span', { class: 'chip' }, '');
    this.memory = bar(MEMORY, 'Memory');
    this.memoryKeys = legend(MEMORY);
    this.work = bar(WORK, 'Time, last 10 s');
    this.workKeys = legend(WORK);
    this.rows = ROWS.map(() => h('dd', null, '–'));
    this.host = h('p', { class: 'host cut' });
    this.sub = h('p', { class: 'soft sub' });
    this.el = h('article', { class: 'card rank', 'data-rank': rank.rank, 'aria-label': `Rank ${rank.rank}` },
      h('header', null, h('h3', null, `Rank ${rank.rank}`), this.state), this.host, this.sub,
      h('h4', null, 'Memory'), this.memory.el, this.memoryKeys.el,
      h('h4', null, 'Time, last 10 s'), this.work.el, this.workKeys.el,
      h('dl', { class: 'facts' }, ROWS.flatMap((name, i) => [h('dt', null, name), this.rows[i]])));
  }

  // now: the clock of the server.
  update(rank, { ranks, links }, rate, state, now) {
    this.el.classList.toggle('lost', state === 'lost');
    this.el.classList.toggle('bare', rank.memory === undefined); // nothing to show but its state
    setText(this.state, state === 'back' ? 'recovered' : state);
    this.state.className = `chip ${TONES[state]}`;
    setText(this.host, rank.host ?? 'host unknown');
    this.host.title = rank.host ?? '';
    setText(this.sub, state === 'lost' && rank.since !== undefined ? `lost ${since(rank.since, now)}`
      : state === 'loading' ? `loading ${percent(rank.loaded)} ${rank.loadText}` : [roleOf(rank), layersOf(rank)].filter(Boolean).join(' · '));
    this.setMemory(rank.memory ?? {});
    this.setWork(rate('compute_s'), rate('collective_s'));
    const cpu = rate('cpu_s');
    const share = [rank.heads, rank.ffn, rank.vocab].map((v) => (v === undefined ? '–' : count(v))).join(', ');
    [Number.isFinite(cpu) ? `${fixed(cpu, 2)} cores` : '–',
      Number.isFinite(rank.temperature_c) && rank.temperature_c > 0 ? `${fixed(rank.temperature_c, 0)} °C` : 'n/a',
      Number.isFinite(rank.power_w) && rank.power_w > 0 ? `${digits3(rank.power_w)} W` : 'n/a',
      count(rank.tokens), percent(shareOf(rank, ranks), 1), share, devicesOf(rank, links) || 'none',
    ].forEach((text, i) => setText(this.rows[i], text));
  }

  setMemory({ weights = NaN, kv = NaN, available = NaN, total = NaN }) {
    const rest = Math.max(0, total - available - weights - kv);
    const values = [weights, kv, rest, available];
    this.memory.set(values.map((v) => (v > 0 ? v : 0)));
    this.memoryKeys.outs.forEach((out, i) => setText(out, bytes(values[i])));
  }

  // Shares of one second; rounding in the reports must not make the sum larger.
  setWork(computed, collected) {
    const compute = Math.min(1, computed), collective = Math.min(1 - compute, collected);
    const idle = Math.max(0, 1 - compute - collective);
    this.work.set([compute, collective, idle].map((v) => (v > 0 ? v : 0)));
    [compute, collective, idle].forEach((v, i) =>
      setText(this.workKeys.outs[i], Number.isFinite(v) ? `${percent(v)}` : '–'));
  }
}

export class Ranks {
  constructor() {
    this.grid = h('div', { class: 'rank-grid' });
    this.empty = h('p', { class: 'empty' }, 'No ranks are known yet.');
    this.el = h('section', { id: 'ranks', 'aria-labelledby': 'ranks-title' },
      h('h2', { id: 'ranks-title' }, 'Ranks'), this.empty, this.grid);
    this.cards = [];
  }

  // before: the engine of an older snapshot.
  update(engine, before, state, now) {
    const ranks = engine?.ranks ?? [], numbers = ranks.map((r) => r.rank).join();
    this.empty.hidden = ranks.length > 0;
    if (numbers !== this.numbers) {
      this.numbers = numbers;
      this.cards = ranks.map((rank) => new RankCard(rank));
      this.grid.replaceChildren(...this.cards.map((card) => card.el));
    }
    this.cards.forEach((card, i) =>
      card.update(ranks[i], engine, (name) => rankRate(engine, before, ranks[i].rank, name), state(ranks[i]), now));
  }
}
