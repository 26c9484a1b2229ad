// The page: views, theme, key, keyboard, and the snapshots, which are passed on to all views.
import { h, button, byId, setText } from './dom.js';
import { clock, duration, fixed } from './format.js';
import { Feed, apiKey, setApiKey } from './feed.js';
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
    else if (event.key === '/' || event.key === 'n') {
      event.preventDefault();
      location.hash = 'chat';
      this.show();
      if (event.key === 'n') this.chat.fresh();
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
    if (state === 'live') { this.requests.total = -1; this.loadAbout(); }
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
    else if (this.line === 'live' && this.now?.status === 'engine_lost') message = `The engine is gone and is being restarted. ${this.heldText()}`;
    else if (this.line === 'live' && this.now?.status === 'starting') message = `The engine is starting.${this.loadText()}`;
    else if (this.line === 'live' && this.now?.engine?.missing?.length > 0) message = this.missingText();
    else if (this.line === 'live' && this.now?.status === 'draining')
      message = `The server is being drained: it takes no new requests.${this.now.requests_running > 0 ? ` ${this.now.requests_running} still running.` : ''}`;
    banner.hidden = message === '';
    setText(banner, message);
    document.body.classList.toggle('offline', this.line !== 'live');
  }

  loadText() { // how far the ranks are comes after a semicolon
    const load = this.now.detail?.split('; ')[1];
    return load === undefined ? '' : ` It is loading the model: ${load}.`;
  }

  missingText() {
    const missing = this.now.engine.missing;
    return `Running without rank${missing.length === 1 ? '' : 's'} ${missing.join(', ')}, until ${missing.length === 1 ? 'it is' : 'they are'} back.`;
  }

  lossText() {
    const lost = this.now.engine.lost ?? '';
    if (lost.startsWith('the group re-forms')) return `${lost[0].toUpperCase()}${lost.slice(1)}. Answers go on in a moment.`;
    const names = [...this.lost].map((rank) => `rank ${rank}`).join(', ');
    return `${names === '' ? 'The group is re-forming' : `Lost: ${names}`}. ${this.heldText()}`;
  }

  heldText() {
    const held = this.now?.requests_held ?? 0;
    return held === 0 ? 'Requests wait until all ranks are back.'
      : `${held} ${held === 1 ? 'answer goes' : 'answers go'} on when all ranks are back.`;
  }

  // Without an engine no rank is online. When the group is lost, the engine's error text names the rank; if it does
  // not, all ranks but rank 0, which is the engine itself, count as lost.
  alive(rank) {
    const engine = this.now?.engine;
    if (this.line !== 'live' || engine === null || engine === undefined) return false;
    if (engine.ready !== false) return true;
    const named = /\brank (\d+)/.exec(engine.lost ?? '');
    return named === null ? rank.rank === 0 : rank.rank !== Number(named[1]);
  }

  snapshot(s) {
    this.now = s;
    this.seen = Date.now();
    this.history.add(this.seen, s);
    if (s.engine?.uptime_s !== this.engine?.uptime_s) this.reported = this.seen;
    if (s.engine?.ranks?.length > 0) this.engine = s.engine;
    this.watchRanks();
    this.status('');
    setText(byId('model-name'), s.model ?? 'no model yet');
    setText(byId('rate'), `${fixed(this.history.last('tokens') ?? 0)} tok/s`);
    setText(byId('uptime'), `up ${duration(s.uptime_s)}`);
    this.models.update(s.models ?? [], s.model);
    this.operate.update(s, this.engine?.ranks ?? []);
    this.requests.update(s);
    this.redraw();
  }

  // A rank can be lost and come back between two snapshots: then its process id has changed.
  watchRanks() {
    for (const rank of this.engine?.ranks ?? []) {
      const online = this.alive(rank), was = !this.lost.has(rank.rank), name = `Rank ${rank.rank}`;
      const other = this.pids.has(rank.rank) && this.pids.get(rank.rank) !== rank.pid;
      if (online && (!was || other)) this.back.set(rank.rank, Date.now());
      if (online && other && was) this.requests.note(`${name} was lost and has recovered`, 'warn');
      else if (online !== was) this.requests.note(online ? `${name} recovered` : `${name} was lost`, online ? 'good' : 'bad');
      if (online) this.lost.delete(rank.rank); else this.lost.add(rank.rank);
      if (online) this.pids.set(rank.rank, rank.pid);
    }
  }

  // 'online', 'lost', 'back' for a while after its return, or 'unknown' while the API does not respond.
  stateOf(rank) {
    if (this.line !== 'live') return 'unknown';
    if (!this.alive(rank)) return 'lost';
    return Date.now() - (this.back.get(rank.rank) ?? 0) < BACK_MS ? 'back' : 'online';
  }

  redraw() {
    if (this.view !== 'overview' || document.hidden) return;
    const engine = this.engine, before = this.history.before;
    const state = (rank) => this.stateOf(rank);
    const zero = engine?.ranks?.[0] ?? {};
    const perToken = zero.tokens > 0 ? zero.collective_bytes / zero.tokens : NaN;
    this.cluster.update(engine, state, perToken, this.history.last('tokens') > 0);
    this.live.update(this.history, engine);
    this.ranks.update(engine, before?.snapshot.engine, state);
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
