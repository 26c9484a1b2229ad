// The group as a drawing: a box for each rank with its share of the model, a line for each link with what was
// measured on it. A table says the same in words.
import { h, svg, setText, setClass } from './dom.js';
import { bytes, digits3, percent } from './format.js';

const NODE_W = 176, NODE_H = 92, GAP = 150;

// Where ranks stand: a column when the page is narrow, stages as columns, a row of few, else a ring.
function place(ranks, width) {
  const n = ranks.length, stages = 1 + Math.max(0, ...ranks.map((r) => r.stage ?? 0));
  const column = (i) => ({ x: width / 2, y: 60 + i * (NODE_H + 64) });
  if (width < 520 || n === 1) return { spots: ranks.map((_, i) => column(i)), height: n * (NODE_H + 64) - 34 };
  const columns = stages > 1 ? stages : n;
  if (columns * (NODE_W + 60) <= width && (stages > 1 || n <= 4)) {
    const rows = Math.max(...ranks.map((r) => (stages > 1 ? r.tensor_rank ?? 0 : 0))) + 1;
    const pitch = Math.min((width - NODE_W - 24) / Math.max(1, columns - 1), NODE_W + 2 * GAP);
    const left = (width - pitch * (columns - 1)) / 2;
    const arc = stages > 1 || n < 3 ? 0 : 40;
    const spots = ranks.map((r, i) => stages > 1
      ? { x: left + pitch * r.stage, y: 62 + (r.tensor_rank ?? 0) * (NODE_H + 48) }
      : { x: left + pitch * i, y: 62 });
    return { spots, height: rows * (NODE_H + 48) - 16 + arc };
  }
  const rx = Math.min(width / 2 - NODE_W / 2 - 8, 420), ry = Math.max(140, Math.min(26 * n, 300));
  const spots = ranks.map((_, i) => {
    const angle = (2 * Math.PI * i) / n - Math.PI / 2;
    return { x: width / 2 + rx * Math.cos(angle), y: ry + 62 + ry * Math.sin(angle) };
  });
  return { spots, height: 2 * ry + NODE_H + 32 };
}

// What a rank holds, as a share of all weights.
export function shareOf(rank, ranks) {
  const weight = (r) => r.memory?.weights || (r.layers?.[1] - r.layers?.[0]) * r.heads || 0;
  const total = ranks.reduce((sum, r) => sum + weight(r), 0);
  return total > 0 ? weight(rank) / total : NaN;
}

export function roleOf(rank) {
  return rank.rank === 0 ? 'leads, samples, serves' : 'computes';
}

function linkWords(link) {
  const parts = [link.kind || 'link'];
  if (link.latency_us > 0) parts.push(`${digits3(link.latency_us)} µs`);
  if (link.bandwidth_gb_s > 0) parts.push(`${digits3(link.bandwidth_gb_s)} GB/s`);
  return parts;
}

// Links as told; without them the ranks are at least joined in a ring.
function linksOf(engine) {
  const ranks = engine.ranks ?? [];
  const told = engine.links ?? ranks.flatMap((r) => r.links ?? []);
  if (told.length > 0) return told.filter((l) => l.a < ranks.length && l.b < ranks.length);
  const joined = ranks.map((_, i) => ({ a: i, b: (i + 1) % ranks.length, kind: 'not measured' }));
  return ranks.length > 2 ? joined : joined.slice(0, ranks.length - 1);
}

export class Cluster {
  constructor() {
    this.svg = svg('svg', { class: 'cluster', role: 'img', 'aria-label': 'Ranks of the group and links between them' });
    this.empty = h('p', { class: 'empty' }, 'Waiting for the engine to tell who is in the group…');
    this.table = h('tbody');
    this.note = h('span', { class: 'soft' });
    this.details = h('details', { hidden: true }, h('summary', null, 'Links in words'),
      h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null,
        ['Between', 'Kind', 'Latency', 'Bandwidth', 'Per token'].map((t) => h('th', { scope: 'col' }, t)))), this.table)));
    this.el = h('section', { class: 'card wide', 'aria-labelledby': 'cluster-title', id: 'cluster' },
      h('header', null, h('h2', { id: 'cluster-title' }, 'Group'), this.note),
      this.svg, this.empty, this.details);
    this.signature = '';
    this.nodes = [];
    new ResizeObserver(() => this.layout()).observe(this.svg);
  }

  // alive(rank) says whether a rank is there; traffic is in bytes for each token.
  update(engine, alive, traffic, flowing) {
    const ranks = engine?.ranks ?? [];
    this.empty.hidden = ranks.length > 0;
    this.svg.toggleAttribute('hidden', ranks.length === 0);
    if (ranks.length === 0) return;
    Object.assign(this, { ranks, links: linksOf(engine), traffic });
    const signature = JSON.stringify([ranks.map((r) => [r.rank, r.stage, r.host, r.layers, r.heads]),
      this.links.map((l) => [l.a, l.b])]);
    if (signature !== this.signature) { this.signature = signature; this.layout(); }
    this.refresh(alive, flowing);
    this.say(engine, alive);
  }

  say(engine, alive) {
    const there = this.ranks.filter(alive).length, n = this.ranks.length;
    const hosts = new Set(this.ranks.map((r) => r.host).filter(Boolean)).size;
    const stages = engine.stages > 1 ? `, ${engine.stages} stages` : '';
    const on = hosts > 0 ? ` on ${hosts} host${hosts === 1 ? '' : 's'}` : '';
    setText(this.note, there === n ? `${n} rank${n === 1 ? '' : 's'}${on}${stages}` : `${there} of ${n} ranks are there`);
    setClass(this.note, there === n ? 'soft' : 'bad-text');
    this.svg.setAttribute('aria-label', this.ranks.map((r) =>
      `rank ${r.rank} ${r.host ?? ''} ${alive(r) ? 'is there' : 'is lost'}`).join(', '));
  }

  layout() {
    const width = Math.round(this.svg.getBoundingClientRect().width);
    if (this.ranks === undefined || width === 0) return;
    const { spots, height } = place(this.ranks, width);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.setAttribute('height', height);
    this.lines = this.links.map((link) => this.line(link, spots));
    this.nodes = this.ranks.map((rank, i) => this.node(rank, spots[i]));
    this.svg.replaceChildren(...this.lines.map((l) => l.el), ...this.nodes.map((n) => n.el));
  }

  // Labels stand in the middle of a line, on a patch of the card's colour; a ring of many has room for none.
  line(link, spots) {
    const a = spots[link.a], b = spots[link.b];
    const over = a.y === b.y && Math.abs(link.a - link.b) > 1;
    const dip = over ? NODE_H * 0.62 : 0;
    const d = over
      ? `M${a.x} ${a.y + NODE_H / 2 - 8}V${a.y + dip + 14}H${b.x}V${b.y + NODE_H / 2 - 8}`
      : `M${a.x} ${a.y}L${b.x} ${b.y}`;
    const path = svg('path', { class: 'link', d });
    const words = [svg('text', { class: 'link-kind' }), svg('text'), svg('text', { class: 'soft' })];
    const el = svg('g', null, path, svg('title'));
    const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2 + (over ? dip + 14 : 0);
    const upright = Math.abs(a.x - b.x) < 10;
    if (this.links.length <= 6) {
      words.forEach((word, i) => {
        word.setAttribute('x', upright ? x + 12 : x);
        word.setAttribute('y', upright ? y - 12 + i * 16 : y + [-9, 17, 33][i]);
        word.setAttribute('text-anchor', upright ? 'start' : 'middle');
      });
      el.append(...words);
    }
    return { el, path, words, link };
  }

  node(rank, spot) {
    const x = spot.x - NODE_W / 2, y = spot.y - NODE_H / 2, left = x + 14;
    const share = svg('rect', { class: 'share', x: left, y: y + 72, height: 6, rx: 3 });
    const parts = {
      state: svg('circle', { class: 'state', cx: x + NODE_W - 18, cy: y + 20, r: 5 }),
      name: svg('text', { class: 'name', x: left, y: y + 25 }),
      host: svg('text', { class: 'soft', x: left, y: y + 43 }),
      holds: svg('text', { class: 'soft', x: left, y: y + 61 }),
    };
    const el = svg('g', { class: 'node', 'data-rank': rank.rank },
      svg('rect', { class: 'box', x, y, width: NODE_W, height: NODE_H, rx: 12 }),
      svg('rect', { class: 'track', x: left, y: y + 72, width: NODE_W - 28, height: 6, rx: 3 }), share,
      ...Object.values(parts), svg('title'));
    return { el, share, ...parts };
  }

  refresh(alive, flowing) {
    this.nodes.forEach((node, i) => {
      const rank = this.ranks[i], there = alive(rank), share = shareOf(rank, this.ranks);
      setClass(node.el, there ? 'node' : 'node lost');
      setText(node.name, `Rank ${rank.rank}${rank.rank === 0 ? ' · leads' : ''}`);
      setText(node.host, there ? (rank.host ?? 'host not told') : 'lost');
      setText(node.holds, `${layersOf(rank)} · ${percent(share)}`);
      node.share.setAttribute('width', Math.max(0, (NODE_W - 28) * (share || 0)));
      setText(node.el.lastChild, `Rank ${rank.rank}: ${roleOf(rank)}`);
    });
    (this.lines ?? []).forEach((line, i) => {
      const link = this.links[i] ?? line.link, words = linkWords(link);
      const there = alive(this.ranks[link.a]) && alive(this.ranks[link.b]);
      setClass(line.path, `link${there ? '' : ' lost'}${there && flowing ? ' flowing' : ''}`);
      setText(line.words[0], words[0]);
      setText(line.words[1], words.slice(1).join(' · '));
      setText(line.words[2], this.traffic > 0 ? `${bytes(this.traffic)} per token` : '');
      setText(line.el.querySelector('title'), words.join(' · '));
    });
    this.details.hidden = this.links.length === 0;
    if (this.details.open || this.table.childElementCount === 0) this.tell();
  }

  tell() {
    this.table.replaceChildren(...this.links.map((l) => h('tr', null,
      h('td', null, `rank ${l.a} – rank ${l.b}`), h('td', null, l.kind || '–'),
      h('td', null, l.latency_us > 0 ? `${digits3(l.latency_us)} µs` : '–'),
      h('td', null, l.bandwidth_gb_s > 0 ? `${digits3(l.bandwidth_gb_s)} GB/s` : '–'),
      h('td', null, this.traffic > 0 ? bytes(this.traffic) : '–'))));
  }
}

export function layersOf(rank) {
  return rank.layers === undefined ? '' : `layers ${rank.layers[0]}–${rank.layers[1] - 1}`;
}
