// The group as a drawing: a box for each rank with its share of the model, a line for each link with its measured
// latency and bandwidth. A table has the same figures.
import { h, svg, setText, setClass } from './dom.js';
import { bytes, clock, digits3, fixed, percent } from './format.js';

const NODE_W = 208, NODE_H = 110, GAP = 150, ROW = NODE_H + 64, DETOUR = 44, TOP = 72;
const SIDE = 12, SIDES_MAX = 3; // detours beside a column
const KINDS = { rdma: 'RDMA', tcp: 'TCP', shm: 'shared memory', mpi: 'MPI' };

// Labels are at the left of the lines, and links between ranks that are not neighbours at the right of the column.
function placeColumn(ranks, width) {
  return { kind: 'column', spots: ranks.map((_, i) => ({ x: width / 2 - (ranks.length > 2 ? SIDE : 0), y: TOP + i * ROW })), height: ranks.length * ROW - 34 };
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
  return { kind: 'ring', spots, height: Math.max(...spots.map((spot) => spot.y)) + NODE_H / 2 + 20 };
}

// The layout: one column on a narrow page, a column for each stage, a row of a few ranks, else a ring.
function place(ranks, links, width) {
  const n = ranks.length, stages = 1 + Math.max(0, ...ranks.map((r) => r.stage ?? 0));
  if (n === 1 || width < 520) return placeColumn(ranks, width);
  if (stages > 1 && stages * (NODE_W + 60) <= width && ranks.every((r) => r.stage !== undefined)) return placeStages(ranks, width, stages);
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

// The RDMA devices of a rank, from the links that the engine reports.
export function devicesOf(rank, links = []) {
  const names = links.flatMap((l) => (l.a === rank.rank ? [l.a_device] : l.b === rank.rank ? [l.b_device] : []));
  return [...new Set(names.filter(Boolean))].join(', ');
}

// What RDMA reached when the group formed, for the title; '' without it.
export function rdmaNote(links) {
  const speeds = links.filter((l) => l.kind === 'rdma').map((l) => l.bandwidth_gb_s || 0);
  if (speeds.length === 0) return '';
  const which = speeds.length === links.length ? 'RDMA' : `RDMA on ${speeds.length} of ${links.length} links`;
  return ` · ${which}, peak ${digits3(Math.max(...speeds))} GB/s`;
}

const kindOf = (link) => KINDS[link.kind] ?? (link.kind || 'link');

function linkDevices(link) {
  if (!link.a_device) return '';
  return link.a_device === link.b_device ? link.a_device : `${link.a_device} – ${link.b_device}`;
}

function linkWords(link) {
  const parts = [kindOf(link)];
  if (link.latency_us > 0) parts.push(`${digits3(link.latency_us)} µs`);
  if (link.bandwidth_gb_s > 0) parts.push(`${digits3(link.bandwidth_gb_s)} GB/s`);
  return parts;
}

// The measured links, by the places of their ranks in the list; without any, the ranks are drawn as a ring.
function linksOf(engine) {
  const ranks = engine.ranks ?? [], at = (number) => ranks.findIndex((r) => r.rank === number);
  const measured = (engine.links ?? []).map((l) => ({ ...l, a: at(l.a), b: at(l.b) }));
  if (measured.length > 0) return measured.filter((l) => l.a >= 0 && l.b >= 0);
  const joined = ranks.map((_, i) => ({ a: i, b: (i + 1) % ranks.length, kind: ' ' })); // not measured
  return ranks.length > 2 ? joined : joined.slice(0, ranks.length - 1);
}

// How much slower than the mean the slowest rank computes.
function balanceNote({ imbalance }) {
  if (!Number.isFinite(imbalance?.ratio)) return '';
  return ` · imbalance ${fixed(imbalance.ratio, 2)}, rank ${imbalance.rank} is slowest`;
}

// Cuts a text of the drawing to a width; the whole of it is in the title of its box.
function fitText(el, text, width) {
  setText(el, text);
  const length = el.getComputedTextLength();
  if (length > width) setText(el, `${text.slice(0, Math.max(1, Math.floor((text.length * width) / length) - 1))}…`);
}

export class Cluster {
  // tools: a button for its header; notice: a line below it.
  constructor(tools, notice) {
    this.svg = svg('svg', { class: 'cluster', role: 'img', 'aria-label': 'Ranks of the group and links between them' });
    this.empty = h('p', { class: 'empty' }, 'Waiting for the engine to report its ranks…');
    this.table = h('tbody');
    this.note = h('span', { class: 'soft' });
    this.details = h('details', { hidden: true }, h('summary', null, 'Show as table'),
      h('div', { class: 'scroll short' }, h('table', null, h('thead', null, h('tr', null,
        ['Between', 'Kind', 'Devices', 'Latency', 'Bandwidth'].map((t) => h('th', { scope: 'col' }, t)))), this.table)));
    this.el = h('section', { class: 'card wide', 'aria-labelledby': 'cluster-title', id: 'cluster' },
      h('header', null, h('h2', { id: 'cluster-title' }, 'Group'), h('span', { class: 'header-tools' }, this.note, tools)),
      notice, this.svg, this.empty, this.details);
    this.signature = '';
    this.nodes = [];
    new ResizeObserver(() => this.layout()).observe(this.svg);
  }

  // state(rank) is 'online', 'loading', 'lost', 'back' or 'unknown'; traffic is what a rank sends for each token, in
  // bytes. Lost ranks have `since`, loading ones `loaded` and `loadText`.
  update(engine, state, traffic, flowing) {
    const ranks = engine?.ranks ?? [];
    this.empty.hidden = ranks.length > 0;
    this.svg.toggleAttribute('hidden', ranks.length === 0);
    if (ranks.length === 0) return;
    Object.assign(this, { ranks, links: linksOf(engine), reported: engine.links, traffic });
    const signature = JSON.stringify([ranks.map((r) => [r.rank, r.stage, r.host, r.layers, r.heads]),
      this.links.map((l) => [l.a, l.b])]);
    this.fresh = () => this.refresh(state, flowing);
    if (signature !== this.signature) { this.signature = signature; this.layout(); }
    else this.fresh();
    this.summarize(engine, (rank) => state(rank) !== 'lost' && state(rank) !== 'loading', state);
  }

  summarize(engine, alive, state) {
    const online = this.ranks.filter(alive).length, n = this.ranks.length;
    const loading = this.ranks.some((rank) => state(rank) === 'loading');
    const hosts = new Set(this.ranks.map((r) => r.host).filter(Boolean)).size;
    const stages = engine.stages > 1 ? `, ${engine.stages} stages` : '';
    const traffic = n > 2 && this.traffic > 0 ? ` · ${bytes(this.traffic)} per token and rank` : '';
    const on = hosts > 0 ? ` on ${hosts} host${hosts === 1 ? '' : 's'}` : '';
    const rdma = rdmaNote(this.links), balance = balanceNote(engine);
    setText(this.note, online === n ? `${n} rank${n === 1 ? '' : 's'}${on}${stages}${rdma}${traffic}${balance}` : `${online} of ${n} ranks online`);
    setClass(this.note, online === n ? 'soft' : loading ? 'warn-text' : 'bad-text');
    this.svg.setAttribute('aria-label', this.ranks.map((r) =>
      `rank ${r.rank} ${r.host ?? ''} is ${state(r) === 'back' ? 'online' : state(r)}`).join(', '));
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
    // A ring, and lines beside a column, have no space for labels.
    const bare = kind === 'ring' || (kind === 'column' && this.detours > 0);
    if (bare !== this.bare) this.bare = this.details.open = bare; // later the user decides
    this.fresh();
  }

  // A label is placed at the middle of its line if there is space; the table has all of them.
  line(link, kind, spots) {
    const a = spots[link.a], b = spots[link.b], [ra, rb] = [this.ranks[link.a], this.ranks[link.b]];
    const step = Math.abs(link.a - link.b), apart = step > 1 && !(kind === 'ring' && step === spots.length - 1);
    const around = apart && (kind === 'row' || kind === 'column') ? ++this.detours : 0;
    const dip = around > 0 && kind === 'row' ? NODE_H / 2 + 24 + DETOUR * (around - 1) : 0;
    const side = a.x + NODE_W / 2 + SIDE * around;
    const path = svg('path', { d: around === 0 ? `M${a.x} ${a.y}L${b.x} ${b.y}`
      : dip > 0 ? `M${a.x + 8 * around} ${a.y}V${a.y + dip}H${b.x - 8 * around}V${b.y}`
        : `M${a.x} ${a.y + 6 * around}H${side}V${b.y - 6 * around}H${b.x}` });
    const el = svg('g', { visibility: kind === 'column' && around > SIDES_MAX ? 'hidden' : null }, path, svg('title'));
    const words = [svg('text', { class: 'link-kind' }), svg('text'), svg('text', { class: 'soft' })];
    const labelled = kind === 'stages' ? ra.stage === rb.stage || ra.tensor_rank === rb.tensor_rank : kind !== 'ring';
    const x = (a.x + b.x) / 2, y = (a.y + b.y) / 2 + dip, upright = Math.abs(a.x - b.x) < 10;
    words.forEach((word, i) => {
      word.setAttribute('x', upright ? x - 12 : x);
      word.setAttribute('y', upright ? y - 12 + i * 16 : y + [-9, 17, 33][i]);
      word.setAttribute('text-anchor', upright ? 'end' : 'middle');
    });
    if (labelled && (around === 0 || dip > 0)) el.append(...(dip > 0 ? words.slice(0, 2) : words));
    const room = upright ? a.x - 12 : Math.abs(a.x - b.x) - (dip > 0 ? 0 : NODE_W) - 12;
    return { el, path, words, link, room, faint: apart && kind === 'ring' ? ' faint' : '' };
  }

  node(rank, spot) {
    const x = spot.x - NODE_W / 2, y = spot.y - NODE_H / 2, left = x + 14;
    const share = svg('rect', { class: 'share', x: left, y: y + 91, height: 6, rx: 3 });
    const parts = {
      state: svg('circle', { class: 'state', cx: x + NODE_W - 18, cy: y + 20, r: 5 }),
      name: svg('text', { class: 'name', x: left, y: y + 25 }),
      host: svg('text', { class: 'soft', x: left, y: y + 43 }),
      holds: svg('text', { class: 'soft', x: left, y: y + 61 }),
      device: svg('text', { class: 'soft', x: left, y: y + 79 }),
    };
    const el = svg('g', { class: 'node', 'data-rank': rank.rank },
      svg('rect', { class: 'box', x, y, width: NODE_W, height: NODE_H, rx: 12 }),
      svg('rect', { class: 'track', x: left, y: y + 91, width: NODE_W - 28, height: 6, rx: 3 }), share,
      ...Object.values(parts), svg('title'));
    return { el, share, ...parts };
  }

  refresh(state, flowing) {
    this.nodes.forEach((node, i) => {
      const rank = this.ranks[i], is = state(rank), share = shareOf(rank, this.ranks);
      setClass(node.el, `node ${is}`);
      setText(node.name, `Rank ${rank.rank}${rank.rank === 0 ? ' · coordinator' : ''}`);
      const device = devicesOf(rank, this.reported), place = rank.host ?? 'host unknown';
      fitText(node.host, place, NODE_W - 28);
      fitText(node.device, is === 'back' ? 'recovered' : is === 'loading' ? rank.loadText
        : device ? `RDMA ${device}` : '', NODE_W - 28);
      fitText(node.holds, holdsText(rank, is, share), NODE_W - 28);
      node.share.setAttribute('width', Math.max(0, (NODE_W - 28) * ((is === 'loading' ? rank.loaded : share) || 0)));
      setText(node.el.lastChild, [`Rank ${rank.rank}: ${roleOf(rank)}`, place, device, holdsText(rank, is, share)]
        .filter(Boolean).join(' · '));
    });
    (this.lines ?? []).forEach((line, i) => {
      const link = this.links[i] ?? line.link, words = linkWords(link);
      const ends = [state(this.ranks[link.a]), state(this.ranks[link.b])], lost = ends.includes('lost');
      const moving = flowing && !lost && !ends.includes('loading'), devices = linkDevices(link);
      setClass(line.path, `link${line.faint}${lost ? ' lost' : ''}${moving ? ' flowing' : ''}`);
      setText(line.words[0], devices ? `${words[0]} ${devices}` : words[0]);
      if (devices && line.words[0].getComputedTextLength() > line.room) setText(line.words[0], words[0]);
      setText(line.words[1], words.slice(1).join(' · '));
      setText(line.words[2], this.traffic > 0 && this.ranks.length === 2 ? `${bytes(this.traffic)} per token` : '');
      setText(line.el.querySelector('title'), [...words, devices].filter(Boolean).join(' · '));
    });
    this.details.hidden = this.links.length === 0;
    if (this.details.open || this.table.childElementCount === 0) this.drawTable();
  }

  drawTable() {
    this.table.replaceChildren(...this.links.map((l) => h('tr', null,
      h('td', null, `rank ${this.ranks[l.a].rank} – rank ${this.ranks[l.b].rank}`), h('td', null, kindOf(l)),
      h('td', null, linkDevices(l) || '–'),
      h('td', null, l.latency_us > 0 ? `${digits3(l.latency_us)} µs` : '–'),
      h('td', null, l.bandwidth_gb_s > 0 ? `${digits3(l.bandwidth_gb_s)} GB/s` : '–'))));
  }
}

function holdsText(rank, state, share) {
  if (state === 'loading') return `loading ${percent(rank.loaded)}`;
  if (state === 'lost') return rank.since === undefined ? 'lost' : `lost since ${clock(rank.since)}`;
  return [layersOf(rank), Number.isFinite(share) ? percent(share) : ''].filter(Boolean).join(' · ');
}

export function layersOf(rank) {
  return rank.layers === undefined ? '' : `layers ${rank.layers[0]}–${rank.layers[1] - 1}`;
}
