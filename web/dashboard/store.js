// The models on the disk of the server: what there is, whether it fits, and downloads with their progress.
import { h, button, setText } from './dom.js';
import { bytes, percent } from './format.js';
import { ask, askJson, lines } from './feed.js';

export class Store {
  constructor() {
    this.rows = h('tbody');
    this.empty = h('p', { class: 'empty', hidden: true }, 'No models are on the disk of this server yet.');
    this.why = h('p', { class: 'soft', hidden: true });
    this.error = h('p', { class: 'error-box', role: 'alert', hidden: true });
    this.bar = h('progress', { max: 1, value: 0, 'aria-label': 'Download' });
    this.said = h('span', { class: 'num soft' });
    this.progress = h('div', { class: 'pull', role: 'status', hidden: true }, this.bar, this.said,
      button('Cancel', () => this.abort?.abort(), { class: 'small', id: 'pull-cancel' }));
    this.table = h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null,
      ['Name', 'Size', 'Quantized', 'Fits', ''].map((name) => h('th', { scope: 'col' }, name)))), this.rows));
    this.form = this.pullForm();
    this.el = h('section', { class: 'card', id: 'store', hidden: true, 'aria-labelledby': 'store-title' },
      h('header', null, h('h2', { id: 'store-title' }, 'On disk')), this.why, this.table, this.empty, this.form, this.progress, this.error);
  }

  pullForm() {
    const input = h('input', { id: 'pull-name', placeholder: 'org/name', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off', required: true });
    const form = h('form', { class: 'line' }, h('label', { htmlFor: 'pull-name' }, 'Download from the hub'), input,
      h('button', { type: 'submit' }, 'Download'));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (input.value.trim() !== '') this.pull(input.value.trim());
    });
    return form;
  }

  async load() {
    const cluster = await askJson('/cluster');
    this.el.hidden = false;
    this.why.hidden = cluster.manage_models;
    setText(this.why, 'Start the server with --manage-models to see and download models here.');
    for (const el of [this.table, this.form]) el.hidden = !cluster.manage_models;
    if (cluster.manage_models) await this.list();
  }

  async list() {
    const { models } = await askJson('/models/local');
    this.empty.hidden = models.length > 0;
    this.table.hidden = models.length === 0;
    this.rows.replaceChildren(...models.map((m) => this.row(m)));
  }

  row(m) {
    const verdict = m.error ?? m.fits ?? '';
    const tone = m.error ? 'bad-text' : verdict === 'yes' ? 'good-text' : 'warn-text';
    const copy = m.complete ? null : button('Go on', () => this.pull(m.name), { class: 'small' });
    return h('tr', null, h('th', { scope: 'row', title: m.path ?? '' }, m.name), h('td', null, bytes(m.bytes)),
      h('td', null, m.quantization ?? '–'), h('td', { class: tone }, verdict), h('td', null, copy));
  }

  fail(message) {
    setText(this.error, message);
    this.error.hidden = message === '';
  }

  async pull(model) {
    if (this.abort) return;
    this.fail('');
    this.abort = new AbortController();
    this.progress.hidden = false;
    this.show(model, {});
    try {
      const response = await ask('/api/pull', { body: { model }, signal: this.abort.signal });
      for await (const report of lines(response)) {
        if (report.error !== undefined) throw new Error(report.error);
        this.show(model, report);
      }
    } catch (error) {
      this.fail(error.name === 'AbortError' ? `${model}: the download was cancelled; what has come is kept.` : error.message);
    }
    this.abort = undefined;
    this.progress.hidden = true;
    this.list().catch((error) => this.fail(error.message));
  }

  show(model, { total, completed }) {
    const share = total > 0 ? (completed ?? 0) / total : undefined;
    if (share === undefined) this.bar.removeAttribute('value');
    else this.bar.value = share;
    setText(this.said, share === undefined ? `${model}: asking the hub…` : `${model}: ${bytes(completed)} of ${bytes(total)}, ${percent(share)}`);
  }
}
