// The latest requests with a detail view, and a log of failed requests and of events that this page has seen.
import { h, button, facts, setText } from './dom.js';
import { clock, count, dateTime, percent, rate, seconds } from './format.js';
import { askJson } from './feed.js';

const SHOWN = 100, FIRST = 2000, EVENTS_MAX = 200;
const COLUMNS = ['Time', 'Kind', 'Status', 'Prompt tokens', 'Cached tokens', 'Answer tokens', 'First token', 'Speed', 'Total'];
const TONES = { ok: 'good', error: 'bad', timeout: 'bad', cancelled: 'cancelled', refused: 'warn' };

function timeline(r) {
  const spans = [['queue', 'Queue', r.queue_s], ['prefill', 'Prefill', r.prefill_s], ['decode', 'Decode', r.decode_s]];
  const rest = Math.max(0, r.wall_time_s - r.queue_s - r.prefill_s - r.decode_s);
  spans.push(['rest', 'Other', rest]);
  const bar = h('div', { class: 'bar tall', role: 'img', 'aria-label': spans.map(([, n, v]) => `${n} ${seconds(v)}`).join(', ') });
  for (const [name, , value] of spans) {
    const part = h('i', { class: name });
    part.style.flexGrow = String(r.wall_time_s > 0 ? value / r.wall_time_s : 0);
    bar.append(part);
  }
  return h('div', null, bar, h('ul', { class: 'legend' }, spans.map(([name, text, value]) =>
    h('li', null, h('i', { class: name }), h('span', null, text), h('span', { class: 'num' }, seconds(value))))));
}

class Detail {
  constructor() {
    this.body = h('div');
    this.el = h('dialog', { class: 'detail', 'aria-labelledby': 'detail-title' },
      h('header', { class: 'row' }, h('h2', { id: 'detail-title' }, 'Request'),
        button('Close', () => this.el.close(), { class: 'quiet small' })), this.body);
    this.el.addEventListener('click', (event) => { if (event.target === this.el) this.el.close(); });
  }

  show(r) {
    const error = r.error_message ? h('p', { class: 'error-box' }, r.error_message) : null;
    this.body.replaceChildren(...[error, timeline(r), facts([
      ['Id', h('code', null, r.request_id)], ['Received', dateTime(r.timestamp * 1000)], ['Kind', r.kind],
      ['Model', r.model_id], ['Status', r.status], ['Finish reason', r.finish_reason],
      ['Streamed', r.is_stream ? 'yes' : 'no'],
      ['Prompt', `${count(r.prompt_tokens)} tokens`],
      ['From the cache', `${count(r.cached_tokens)} tokens (${percent(r.prompt_tokens > 0 ? r.cached_tokens / r.prompt_tokens : 0)})`],
      ['Answer', `${count(r.generated_tokens)} of at most ${count(r.max_tokens_requested)} tokens`],
      ['Time to first token', seconds(r.time_to_first_token_s)], ['Speed', rate(r.tokens_per_second)],
      ['Total', seconds(r.wall_time_s)],
    ])].filter(Boolean));
    this.el.showModal();
  }
}

function row(r, open) {
  const cells = [
    h('button', { type: 'button', class: 'link', 'aria-label': `Details of the request at ${clock(r.timestamp * 1000)}` },
      dateTime(r.timestamp * 1000)),
    r.kind, h('span', { class: `chip ${TONES[r.status] ?? ''}` }, r.status), count(r.prompt_tokens), count(r.cached_tokens),
    count(r.generated_tokens), r.time_to_first_token_s > 0 ? seconds(r.time_to_first_token_s) : '–',
    r.tokens_per_second > 0 ? rate(r.tokens_per_second) : '–', seconds(r.wall_time_s)];
  return h('tr', { onclick: () => open(r) }, cells.map((cell, i) => h('td', { class: i > 2 ? 'num' : null, 'data-name': COLUMNS[i] }, cell)));
}

export class Requests {
  constructor() {
    this.detail = new Detail();
    this.body = h('tbody');
    this.empty = h('p', { class: 'empty' }, 'No requests yet. Send one from the chat or from a client.');
    this.figures = h('div', { class: 'figures' });
    this.filter = h('select', { 'aria-label': 'Which requests', onchange: () => this.draw() },
      [['', 'All'], ['ok', 'Answered'], ['error', 'Errors'], ['timeout', 'Timeouts'], ['cancelled', 'Cancelled'], ['refused', 'Refused']]
        .map(([value, label]) => h('option', { value }, label)));
    this.log = h('ol', { class: 'log', 'aria-live': 'polite' });
    this.logEmpty = h('p', { class: 'empty' }, 'No errors.');
    this.table = h('table', { class: 'requests' }, h('thead', null, h('tr', null, COLUMNS.map((name, i) =>
      h('th', { scope: 'col', class: i > 2 ? 'num' : null }, name)))), this.body);
    this.el = h('div', null, this.figures,
      h('section', { class: 'card', id: 'history', 'aria-labelledby': 'history-title' },
        h('header', null, h('h2', { id: 'history-title' }, 'Requests'), this.filter),
        h('div', { class: 'scroll' }, this.table), this.empty),
      h('section', { class: 'card', id: 'errors', 'aria-labelledby': 'errors-title' },
        h('header', null, h('h2', { id: 'errors-title' }, 'Errors and events')), this.log, this.logEmpty),
      this.detail.el);
    this.requests = [];
    this.events = [];
    this.failed = new Map(); // failed requests stay here when newer ones push them out of the list
    this.rows = new Map(); // by request
    this.total = -1;
  }

  // Loads the list again only when the number of requests has changed.
  async update(snapshot) {
    if (snapshot.total_requests === this.total || this.busy) return;
    this.busy = true;
    try {
      const [recent, stats] = await Promise.all([askJson(`/requests/recent?n=${this.total < 0 ? FIRST : SHOWN}`), askJson('/requests/stats')]);
      this.total = snapshot.total_requests;
      this.requests = recent.requests.slice(0, SHOWN);
      for (const r of recent.requests) if (r.error_message && r.status !== 'cancelled') this.failed.set(r.request_id, r);
      this.drawFigures(stats);
      this.draw();
    } catch { /* the next snapshot tries again */ } finally {
      this.busy = false;
    }
  }

  note(text, tone) {
    this.events.unshift({ at: Date.now(), text, tone });
    this.events.length = Math.min(this.events.length, EVENTS_MAX);
    this.drawLog();
  }

  drawFigures(s) {
    const rows = [['Requests', count(s.total_requests)], ['Errors', count(s.errors + s.timeouts), s.errors + s.timeouts > 0 ? 'bad' : ''],
      ['Refused', count(s.refused), s.refused > 0 ? 'warn' : ''], ['Cancelled', count(s.cancelled), s.cancelled > 0 ? 'cancelled' : ''], ['Tokens generated', count(s.total_generated_tokens)],
      ['Speed, p50', rate(s.p50_tps)], ['First token, p50', seconds(s.p50_ttft_s)],
      ['Total, p95', seconds(s.p95_latency_s)], ['Cache hit rate', percent(s.kv_cache_hit_rate)]];
    this.figures.replaceChildren(...rows.map(([name, value, tone = '']) =>
      h('div', { class: `figure ${tone}` }, h('small', null, name), h('b', null, value))));
  }

  draw() {
    const wanted = this.requests.filter((r) => this.filter.value === '' || r.status === this.filter.value);
    const held = document.activeElement, known = this.rows;
    this.rows = new Map(wanted.map((r) =>
      [r.request_id, known.get(r.request_id) ?? row(r, (x) => this.detail.show(x))]));
    this.body.replaceChildren(...this.rows.values());
    if (this.body.contains(held)) held.focus({ preventScroll: true }); // a row that moved keeps the focus
    this.empty.hidden = wanted.length > 0;
    this.table.hidden = wanted.length === 0;
    setText(this.empty, this.requests.length > 0 ? 'None of the latest requests has this status.'
      : 'No requests yet. Send one from the chat or from a client.');
    this.drawLog();
  }

  drawLog() {
    const failed = [...this.failed.values()].map((r) => ({
      at: r.timestamp * 1000, tone: TONES[r.status] ?? 'bad', text: `${r.kind} ${r.status}: ${r.error_message}`, request: r }));
    const all = [...failed, ...this.events].sort((a, b) => b.at - a.at).slice(0, EVENTS_MAX);
    this.logEmpty.hidden = all.length > 0;
    this.log.replaceChildren(...all.map((e) => h('li', { class: e.tone },
      h('time', null, dateTime(e.at)), h('span', null, e.text),
      e.request ? button('Details', () => this.detail.show(e.request), { class: 'quiet small' }) : null)));
  }
}
