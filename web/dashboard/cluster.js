// The group as a drawing: a box for each rank with its share of the model, a line for each link with its measured
// latency and bandwidth. A table has the same figures.
import { h, svg, setText, setClass } from './dom.js';
import { bytes, digits3, fixed, percent } from './format.js';

const NODE_W = 208, NODE_H = 92, GAP = 150, ROW = NODE_H + 64, DETOUR = 44, TOP = 62;

function placeColumn(ranks, width) {
  return { kind: 'column', spots: ranks.map((_, i) => ({ x: width / 2, y: TOP + i * ROW })), height: ranks.length * ROW - 34 };
}

// Links between ranks that are not neighbours run below the row.
function placeRow(ranks, width, detours) {
  const pitch = Math.min((width - NODE_W - 24) / (ranks.length - 1), NODE_W + 2 * GAP);
  const left = (width - pitch * (ranks.length - 1)) / 2;
  return { kind: 'row', spots: ranks.map((_, i) => ({ x: left + pitch * i, y: TOP })), height: NODE_H + 32 + detours * DETOUR };
}

function placeStages(ranks, width, stages) {
  const pitch = Math.min((width - NODE_W - 24) / (stages - 1), NODE_W + 2 * GAP);
  const left = (width - pitch * (stages - 1)) / 2, rows = 1 + Math.max(...ranks.map((r) => r.tensor_rank));
  return { kind: 'stages', height: rows * ROW - 24,
    spots: ranks.map((r) => ({ x: left + pitch * r.stage, y: TOP + r.tensor_rank * ROW })) };
}

function placeRing(ranks, width) {
  const n = ranks.length, rx = Math.min(width / 2 - NODE_W / 2 - 8, 420), ry = Math.max(140, Math.min(26 * n, 300));
  const spots = ranks.map((_, i) => {
    const angle = (2 * Math.PI * i) / n - Math.PI / 2;
    return { x: width / 2 + rx * Math.cos(angle), y: ry + TOP + ry * Math.sin(angle) };
  });
  return { kind: 'ring', spots, height: 2 * ry + NODE_H + 32 };
}

// The layout: one column on a narrow page, a column for each stage, a row of a few ranks, else a ring.
function place(ranks, links, width) {
  const n = ranks.length, stages = 1 + Math.max(0, ...ranks.map((r) => r.stage ?? 0));
  if (n === 1 || width < 520) return placeColumn(ranks, width);
  if (stages > 1 && stages * (NODE_W + 60) <= width) return placeStages(ranks, width, stages);
  if (stages === 1 && n <= 4 && n * (NODE_W + 60) <= width)
    return placeRow(ranks, width, links.filter((l) => Math.abs(l.a - l.b) > 1).length);
  return placeRing(ranks, width);
}

// The rank's share of all weights.
export function shareOf(rank, ranks) {
  const weight = (r) => r.memory?.weights || (r.layers?.[1] - r.layers?.[0]) * r.heads || 0;
  const total = ranks.reduce((sum, r) => sum + weight(r), 0);
  return total > 0 ? weight(rank) / total : NaN;
}

export function roleOf(rank) {
  return rank.rank === 0 ? 'coordinates, samples, serves' : 'computes';
}

// The RDMA devices of a rank, from the links that it has.
export function devicesOf(rank, links) {
  const names = links.flatMap((l) => (l.a === rank.rank ? [l.a_device] : l.b === rank.rank ? [l.b_device] : []));
  return [...new Set(names.filter(Boolean))].join(', ');
}

// What RDMA reached when the group formed, for the title; '' without it.
export function rdmaNote(links) {
  const speeds = links.filter((l) => l.kind === 'rdma').map((l) => l.bandwidth_gb_s || 0);
  if (speeds.length === 0) return '';
  const which = speeds.length === links.length ? 'RDMA' : `RDMA on ${speeds.length} of ${links.length} links`;
  return ` · ${which}, up to ${digits3(Math.max(...speeds))} GB/s`;
}

function linkWords(link) {
  const parts = [link.kind || 'link'];
  if (link.latency_us > 0) parts.push(`${digits3(link.latency_us)} µs`);
  if (link.bandwidth_gb_s > 0) parts.push(`${digits3(link.bandwidth_gb_s)} GB/s`);
  return parts;
}

// The measured links, by the places of their ranks in the list; without any, the ranks are drawn as a ring.
function linksOf(engine) {
  const ranks = engine.ranks ?? [], at = (number) => ranks.findIndex((r) => r.rank === number);
  const measured = (engine.links ?? []).map((l) => ({ ...l, a: at(l.a), b: at(l.b) }));
  if (measured.length > 0) return measured.filter((l) => l.a >= 0 && l.b >= 0);
  const joined = ranks.map((_, i) => ({ a: i, b: (i + 1) % ranks.length, kind: 'not measured' }));
  return ranks.length > 2 ? joined : joined.slice(0, ranks.length - 1);
}

// How much slower than the mean the slowest rank computes.
function balanceNote({ imbalance }) {
  if (!Number.isFinite(imbalance?.ratio)) return '';
  return ` · imbalance ${fixed(imbalance.ratio, 2)}, rank ${imbalance.rank} is slowest`;
}

export class Cluster {
  // tools: a button for its header; notice: a line below it.
  constructor(tools, notice) {
    this.svg = svg('svg', { class: 'cluster', role: 'img', 'aria-label': 'Ranks of the group and links between them' });
    this.empty = h('p', { class: 'empty' }, 'Waiting for the engine to report its ranks…');
    this.table = h('tbody');
    this.note = h('span', { class: 'soft' });
    this.details = h('details', { hidden: true }, h('summary', null, 'Links as a table'),
      h('div', { class: 'scroll short' }, h('table', null, h('thead', null, h('tr', null,
        ['Between', 'Kind', 'Devices', 'Latency', 'Bandwidth'].map((t) => h('th', { scope: 'col' }, t)))), this.table)));
    this.el = h('section', { class: 'card wide', 'aria-labelledby': 'cluster-title', id: 'cluster' },
      h('header', null, h('h2', { id: 'cluster-title' }, 'Group'), h('span', { class: 'header-tools' }, this.note, tools)),
      notice, this.svg, this.empty, this.details);
    this.signature = '';
    this.nodes = [];
    new ResizeObserver(() => this.layout()).observe(this.svg);
  }

  // state(rank) is 'online', 'lost', 'back' or 'unknown'; traffic is what a rank sends for each token, in bytes.
  update(engine, state, traffic, flowing) {
    const ranks = engine?.ranks ?? [];
    this.empty.hidden = ranks.length > 0;
    this.svg.toggleAttribute('hidden', ranks.length === 0);
    if (ranks.length === 0) return;
    Object.assign(this, { ranks, links: linksOf(engine), traffic });
    const signature = JSON.stringify([ranks.map((r) => [r.rank, r.stage, r.host, r.layers, r.heads]),
      this.links.map((l) => [l.a, l.b])]);
    this.fresh = () => this.refresh(state, flowing);
    if (signature !== this.signature) { this.signature = signature; this.layout(); }
    else this.fresh();
    this.summarize(engine, (rank) => state(rank) !== 'lost');
  }

  summarize(engine, alive) {
    const online = this.ranks.filter(alive).length, n = this.ranks.length;
    const hosts = new Set(this.ranks.map((r) => r.host).filter(Boolean)).size;
    const stages = engine.stages > 1 ? `, ${engine.stages} stages` : '';
    const traffic = n > 2 && this.traffic > 0 ? ` · ${bytes(this.traffic)} per token and rank` : '';
    const on = hosts > 0 ? ` on ${hosts} host${hosts === 1 ? '' : 's'}` : '';
    const rdma = rdmaNote(this.links), balance = balanceNote(engine);
    setText(this.note, online === n ? `${n} rank${n === 1 ? '' : 's'}${on}${stages}${rdma}${traffic}${balance}` : `${online} of ${n} ranks online`);
    setClass(this.note, online === n ? 'soft' : 'bad-text');
    this.svg.setAttribute('aria-label', this.ranks.map((r) =>
      `rank ${r.rank} ${r.host ?? ''} is ${alive(r) ? 'online' : 'lost'}`).join(', '));
  }

  layout() {
    const width = Math.round(this.svg.getBoundingClientRect().width);
    if (this.ranks === undefined || width === 0) return;
    const { kind, spots, height } = place(this.ranks, this.links, width);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.setAttribute('height', height);
    this.detours = 0;
    this.lines = this.links.map((link) => this.line(link, kind, spots));
    this.nodes = this.ranks.map((rank, i) => this.node(rank, spots[i]));
    this.svg.replaceChildren(...this.lines.map((l) => l.el), ...this.nodes.map((n) => n.el));
    if (kind === 'ring') this.details.open = true; // the ring has no space for labels
    this.fresh();
  }

  // A label is placed at the middle of its line if there is space; the table has all of them.
  line(link, kind, spots) {
    const a = spots[link.a], b = spots[link.b], [ra, rb] = [this.ranks[link.a], this.ranks[link.b]];
    const step = Math.abs(link.a - link.b), apart = step > 1 && !(kind === 'ring' && step === spots.length - 1);
    const dip = kind === 'row' && apart ? NODE_H / 2 + 24 + DETOUR * this.detours++ : 0;
    const path = svg('path', { d: dip > 0
      ? `M${a.x + 8 * this.detours} ${a.y}V${a.y + dip}H${b.x - 8 * this.detours}V${b.y}` : `M${a.x} ${a.y}L${b.x} ${b.y}` });
    const el = svg('g', { visibility: kind === 'column' && apart ? 'hidden' : null }, path, svg('title'));
    const words = [svg('text', { class: 'link-kind' }), svg('text'), svg('text', { class: 'soft' })];
    const labelled = kind === 'stages' ? ra.stage === rb.stage || ra.tensor_rank === rb.tensor_rank : kind !== 'ring';
    const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2 + dip, upright = Math.abs(a.x - b.x) < 10;
    words.forEach((word, i) => {
      word.setAttribute('x', upright ? x + 12 : x);
      word.setAttribute('y', upright ? y - 12 + i * 16 : y + [-9, 17, 33][i]);
      word.setAttribute('text-anchor', upright ? 'start' : 'middle');
    });
    if (labelled) el.append(...(dip > 0 ? words.slice(0, 2) : words));
    return { el, path, words, link, faint: apart && kind === 'ring' ? ' faint' : '' };
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

  refresh(state, flowing) {
    const alive = (rank) => state(rank) !== 'lost';
    this.nodes.forEach((node, i) => {
      const rank = this.ranks[i], is = state(rank), share = shareOf(rank, this.ranks);
      setClass(node.el, `node ${is}`);
      setText(node.name, `Rank ${rank.rank}${rank.rank === 0 ? ' · coordinator' : ''}`);
      const device = devicesOf(rank, this.links), place = rank.host ?? 'host unknown';
      setText(node.host, is === 'lost' ? 'lost' : `${place}${is === 'back' ? ' · recovered' : device ? ` · ${device}` : ''}`);
      setText(node.holds, `${layersOf(rank)} · ${percent(share)}`);
      node.share.setAttribute('width', Math.max(0, (NODE_W - 28) * (share || 0)));
      setText(node.el.lastChild, `Rank ${rank.rank}: ${roleOf(rank)}`);
    });
    (this.lines ?? []).forEach((line, i) => {
      const link = this.links[i] ?? line.link, words = linkWords(link);
      const online = alive(this.ranks[link.a]) && alive(this.ranks[link.b]);
      setClass(line.path, `link${line.faint}${online ? '' : ' lost'}${online && flowing ? ' flowing' : ''}`);
      setText(line.words[0], words[0]);
      setText(line.words[1], words.slice(1).join(' · '));
      setText(line.words[2], this.traffic > 0 && this.ranks.length === 2 ? `${bytes(this.traffic)} per token` : '');
      setText(line.el.querySelector('title'), words.join(' · '));
    });
    this.details.hidden = this.links.length === 0;
    if (this.details.open || this.table.childElementCount === 0) this.drawTable();
  }

  drawTable() {
    this.table.replaceChildren(...this.links.map((l) => h('tr', null,
      h('td', null, `rank ${l.a} – rank ${l.b}`), h('td', null, l.kind || '–'),
      h('td', null, l.a_device ? `${l.a_device} – ${l.b_device}` : '–'),
      h('td', null, l.latency_us > 0 ? `${digits3(l.latency_us)} µs` : '–'),
      h('td', null, l.bandwidth_gb_s > 0 ? `${digits3(l.bandwidth_gb_s)} GB/s` : '–'))));
  }
}

export function layersOf(rank) {
  return rank.layers === undefined ? '' : `layers ${rank.layers[0]}–${rank.layers[1] - 1}`;
}
