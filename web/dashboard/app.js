// The page: views, theme, key, keyboard, and the snapshots, which are passed on to all views.
import { h, button, byId, setText } from './dom.js';
import { bytes, clock, duration, percent, rate, since } from './format.js';
import { Feed, apiKey, askJson, setApiKey } from './feed.js';
import { History } from './history.js';
import { Cluster } from './cluster.js';
import { Ranks } from './ranks.js';
import { Live } from './live.js';
import { Requests } from './requests.js';
import { About } from './about.js';
import { Models } from './models.js';
import { Operate } from './operate.js';
import { Store } from './store.js';
import { Chat } from './chat.js';

const VIEWS = ['overview', 'chat', 'requests', 'model'];
const BACK_MS = 8000, SILENT_MS = 5000;
const THEMES = ['auto', 'dark', 'light'];
const STATES = { healthy: ['live', 'good'], degraded: ['degraded', 'warn'], starting: ['starting', 'warn'], engine_lost: ['model unavailable', 'bad'],
  stopping: ['stopping', 'warn'], draining: ['draining', 'warn'] };

// "of 61.5 GiB, 920 MiB/s from rank 0"; nothing for a rank that is done.
function loadWords({ done, total, rate: speed, linked }) {
  return done >= total ? '' : `of ${bytes(total)}, ${bytes(speed)}/s${linked ? ' from rank 0' : ''}`;
}

// Never 100 % before the end.
function loadedPart({ done, total }) {
  return done >= total ? 1 : Math.floor(100 * done / total) / 100;
}

class Page {
  constructor() {
    this.history = new History();
    this.operate = new Operate(() => this.askKey());
    this.cluster = new Cluster(this.operate.button, this.operate.notice);
    this.ranks = new Ranks();
    this.live = new Live();
    this.requests = new Requests();
    this.about = new About();
    this.models = new Models((name) => {
      this.about.chosen = name ?? this.about.chosen;
      if (this.view === 'model') this.loadAbout();
    });
    this.store = new Store();
    this.chat = new Chat(() => this.askKey(), this.models);
    byId('view-overview').append(this.cluster.el, this.live.el, this.ranks.el);
    byId('view-chat').append(this.chat.el);
    byId('view-requests').append(this.requests.el);
    this.live.onmodel = (name) => { this.model = name; this.showModel(); };
    this.ranksNow = [];
    byId('view-model').append(this.models.el, this.about.el, this.store.el);
    this.lost = new Set();
    this.back = new Map(); // rank -> when it returned
    this.pids = new Map();
    this.line = '';
    this.theme();
    this.keyDialog();
    this.listen();
    this.show();
    this.feed = new Feed({ snapshot: (s) => this.snapshot(s), line: (state, why) => this.lineIs(state, why) });
  }

  listen() {
    addEventListener('hashchange', () => this.show());
    addEventListener('keydown', (event) => this.key(event));
    byId('theme').addEventListener('click', () => this.nextTheme());
    byId('key-button').addEventListener('click', () => this.askKey());
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.redraw(); });
  }

  show() {
    const name = VIEWS.find((view) => location.hash === `#${view}`) ?? this.view ?? 'overview';
    for (const view of VIEWS) byId(`view-${view}`).hidden = view !== name;
    for (const a of document.querySelectorAll('nav a[data-view]')) {
      if (a.dataset.view === name) a.setAttribute('aria-current', 'page');
      else a.removeAttribute('aria-current');
    }
    document.body.dataset.view = name;
    document.title = `Shoal · ${byId(`view-${name}`).getAttribute('aria-label')}`;
    this.view = name;
    scrollTo(0, 0);
    this.redraw();
    if (name === 'model' && this.line === 'live') this.loadAbout();
  }

  key(event) {
    if (event.key === 'Escape' && this.chat.escape()) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
    const number = Number(event.key);
    if (number >= 1 && number <= VIEWS.length) location.hash = VIEWS[number - 1];
    else if (event.key === 't') this.nextTheme();
    else if (event.key === '?') byId('help').showModal();
    else if (event.key === '/' || event.key === 'n' || event.key === 'f') {
      event.preventDefault();
      location.hash = 'chat';
      this.show();
      if (event.key === 'n') this.chat.fresh();
      else if (event.key === 'f') this.chat.find();
      else this.chat.input.focus();
    }
  }

  theme() {
    const name = THEMES.includes(localStorage.getItem('shoal.theme')) ? localStorage.getItem('shoal.theme') : 'auto';
    document.documentElement.dataset.theme = name;
    setText(byId('theme-name'), name);
    byId('theme').setAttribute('aria-label', `Theme: ${name}. Press to change.`);
  }

  nextTheme() {
    const now = document.documentElement.dataset.theme;
    localStorage.setItem('shoal.theme', THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
    this.theme();
  }

  keyDialog() {
    const input = h('input', { type: 'password', id: 'api-key', autocomplete: 'off', spellcheck: 'false' });
    const why = h('p', { class: 'soft' }, 'The key is kept in this tab only, until it is closed.');
    const form = h('form', { method: 'dialog' }, h('h2', { id: 'key-title' }, 'API key'), why,
      h('label', { htmlFor: 'api-key' }, 'Key'), input,
      h('div', { class: 'tools' }, h('button', { type: 'submit', class: 'primary' }, 'Use key'),
        button('Cancel', () => this.keys.close(), { class: 'quiet' })));
    this.keys = h('dialog', { 'aria-labelledby': 'key-title', id: 'key-dialog' }, form);
    form.addEventListener('submit', () => { setApiKey(input.value.trim()); this.feed.retry(); });
    this.keys.addEventListener('close', () => this.keyMark());
    document.body.append(this.keys);
    this.keyInput = input;
    this.keyMark();
  }

  keyMark() {
    setText(byId('key-button'), apiKey() === '' ? 'No key' : 'Key set');
  }

  askKey() {
    if (this.keys.open) return;
    this.keyInput.value = apiKey();
    this.keys.showModal();
  }

  lineIs(state, why) {
    if (state === 'key' && this.line !== 'key') this.askKey();
    if (state === 'live' && this.keys.open && this.line === 'key') this.keys.close();
    if (state === this.line) return;
    if (state === 'lost') this.requests.note(`The API does not respond: ${why}`, 'bad');
    if (state === 'live' && this.line === 'lost') this.requests.note('The API responds again', 'good');
    this.line = state;
    if (state === 'live') { this.requests.total = -1; this.shown = undefined; this.loadAbout(); }
    this.status(why);
    this.redraw();
  }

  status(why) {
    const chip = byId('state'), banner = byId('banner');
    const [text, tone] = this.line === 'live' ? STATES[this.now?.status] ?? ['live', 'good']
      : this.line === 'key' ? ['key required', 'warn'] : ['offline', 'bad'];
    setText(chip, text);
    chip.className = `chip ${tone}`;
    const since = this.seen === undefined ? '' : ` Last update at ${clock(this.seen)}.`;
    let message = '';
    if (this.line === 'lost') message = `The API does not respond.${since} Retrying…`;
    else if (this.line === 'key') message = `${why || 'This server requires an API key.'}`;
    else if (this.line === 'live' && this.now?.engine?.ready === false) message = this.lossText();
    else if (this.line === 'live' && this.now?.engine != null && this.seen - this.reported > SILENT_MS)
      message = `The engine has not reported since ${clock(this.reported)}.`;
    else if (this.line === 'live' && this.now?.status === 'engine_lost') message = `The model is unavailable: its engine is being restarted. ${this.heldText()}`;
    else if (this.line === 'live' && this.now?.status === 'starting') message = `The engine is starting.${this.loadText()}`;
    else if (this.line === 'live' && this.now?.engine?.missing?.length > 0) message = this.missingText();
    else if (this.line === 'live' && this.now?.status === 'draining')
      message = `The server is being drained: it takes no new requests.${this.now.requests_running > 0 ? ` ${this.now.requests_running} still running.` : ''}`;
    const mild = this.line === 'live' && this.now?.engine?.ready !== false && this.now?.status !== 'engine_lost';
    banner.hidden = message === '';
    banner.className = mild ? 'warn' : '';
    setText(banner, message);
    document.body.classList.toggle('offline', this.line !== 'live');
  }

  loadText() {
    const ranks = (this.now.loading ?? []).map((r) => `rank ${r.rank}: ${percent(loadedPart(r))} ${loadWords(r)}`.trim());
    return ranks.length === 0 ? '' : ` It is loading the model: ${ranks.join(', ')}.`;
  }

  missingText() {
    const absent = this.now.absent ?? [];
    const names = absent.map((r) => `rank ${r.rank}${r.host ? ` on ${r.host}` : ''}, lost ${since(r.since * 1000, this.history.time)}`);
    return `Running without ${names.join('; ')}.`;
  }

  lossText() {
    const lost = this.now.engine.lost ?? '';
    if (this.now.engine.lost_ranks?.length === 0) return `${lost[0].toUpperCase()}${lost.slice(1)}. Answers go on in a moment.`;
    const names = (this.now.absent ?? []).map((r) => `rank ${r.rank}${r.host ? ` on ${r.host}` : ''} since ${clock(r.since * 1000)}`);
    return `${names.length === 0 ? 'The group is re-forming' : `Lost: ${names.join(', ')}`}. ${this.heldText()}`;
  }

  heldText() {
    const held = this.now?.requests_held ?? 0;
    return held === 0 ? 'Requests wait until all ranks have recovered.'
      : `${held} ${held === 1 ? 'answer goes' : 'answers go'} on when all ranks have recovered.`;
  }

  // The ranks of the last report, and those that the server misses or that load.
  listRanks() {
    const ranks = new Map((this.engine?.ranks ?? []).map((r) => [r.rank, { ...r }]));
    const add = (rank, more) => ranks.set(rank, { ...(ranks.get(rank) ?? { rank }), ...more });
    for (const r of this.now.absent ?? []) add(r.rank, { since: r.since * 1000, host: r.host ?? ranks.get(r.rank)?.host });
    for (const r of this.now.loading ?? []) add(r.rank, { loaded: loadedPart(r), loadText: loadWords(r) });
    return [...ranks.values()].sort((a, b) => a.rank - b.rank);
  }

  alive(rank) {
    return this.line === 'live' && rank.since === undefined && rank.loaded === undefined;
  }

  // The figures of the model that was chosen, else of the one that the snapshot is about.
  async showModel() {
    const names = (this.now?.models ?? []).filter((m) => m.now !== null).map((m) => m.name);
    const name = names.includes(this.model) ? this.model : this.now?.model;
    this.live.choose(names, name);
    if (name === this.shown || !name) return;
    this.shown = name;
    this.history.clear();
    try {
      const history = await askJson(`/metrics/history?model=${encodeURIComponent(name)}`);
      if (name === this.shown) this.history.load(history);
    } catch { this.shown = undefined; /* the next snapshot tries again */ }
    this.redraw();
  }

  snapshot(s) {
    this.now = s;
    this.seen = Date.now();
    this.showModel();
    this.history.add(s, this.shown);
    if (s.engine?.uptime_s !== this.engine?.uptime_s) this.reported = this.seen;
    if (s.engine?.ranks?.length > 0) this.engine = s.engine;
    this.ranksNow = this.listRanks();
    this.watchRanks();
    this.status('');
    setText(byId('model-name'), s.model ?? 'no model yet');
    byId('model-name').title = s.model ?? '';
    setText(byId('rate'), rate(this.history.last('generated_tokens_per_s') || 0));
    setText(byId('uptime'), `up ${duration(s.uptime_s)}`);
    this.models.update(s.models ?? [], s.model);
    this.operate.update(s, this.engine?.ranks ?? []);
    this.requests.update(s);
    this.redraw();
  }

  // A rank can be lost and come back between two snapshots: then its process id has changed.
  watchRanks() {
    for (const rank of this.ranksNow) {
      const online = this.alive(rank), was = !this.lost.has(rank.rank), name = `Rank ${rank.rank}`;
      const other = this.pids.has(rank.rank) && this.pids.get(rank.rank) !== rank.pid;
      if (online && (!was || other)) this.back.set(rank.rank, Date.now());
      if (online && other && was) this.requests.note(`${name} was lost and has recovered`, 'warn');
      else if (online !== was) this.requests.note(online ? `${name} recovered` : `${name} was lost`, online ? 'good' : 'bad');
      if (online) this.lost.delete(rank.rank); else this.lost.add(rank.rank);
      if (online && rank.pid !== undefined) this.pids.set(rank.rank, rank.pid);
    }
  }

  // 'online', 'loading', 'lost', 'back' for a while after its return, or 'unknown' while the API does not respond.
  stateOf(rank) {
    if (this.line !== 'live') return 'unknown';
    if (rank.loaded !== undefined) return 'loading';
    if (!this.alive(rank)) return 'lost';
    return Date.now() - (this.back.get(rank.rank) ?? 0) < BACK_MS ? 'back' : 'online';
  }

  redraw() {
    if (this.view !== 'overview' || document.hidden) return;
    const engine = { ...this.engine, ranks: this.ranksNow }, before = this.history.before;
    const main = this.shown === this.now?.model ? this.engine : undefined;
    const state = (rank) => this.stateOf(rank);
    const zero = engine?.ranks?.[0] ?? {};
    const perToken = zero.tokens > 0 ? zero.collective_bytes / zero.tokens : NaN;
    this.cluster.update(engine, state, perToken, this.history.last('generated_tokens_per_s') > 0);
    this.live.update(this.history, main, this.now?.history);
    this.ranks.update(engine, before?.snapshot.engine, state, this.history.time);
  }

  async loadAbout() {
    try {
      await this.about.load(this.engine ?? this.now?.engine);
      await this.store.load();
    } catch { /* loaded again with the next connection */ }
  }
}

for (const dialog of document.querySelectorAll('dialog [data-close]'))
  dialog.addEventListener('click', () => dialog.closest('dialog').close());
new Page();
