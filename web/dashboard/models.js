// Where a server has several models: which are loaded, and a choice of one for the chat.
import { h, button, setText } from './dom.js';
import { bytes, count, duration } from './format.js';
import { ask } from './feed.js';

const STORE = 'shoal.chat-model';
// How long a model stays in memory: a request without a prompt loads it, or lets go of it.
const KEEP = { Load: undefined, 'Keep loaded': -1, Unload: 0 };
const TONES = { loaded: 'good', loading: 'warn', unloading: 'warn', failed: 'bad' };

export class Models {
  // pick(name) shows the card of a model; without a name, of the one that is shown: something has changed.
  constructor(pick) {
    this.pick = pick;
    this.rows = h('tbody');
    this.error = h('p', { class: 'error-box', role: 'alert', hidden: true });
    this.drawn = '';
    this.el = h('section', { class: 'card', id: 'models', hidden: true, 'aria-labelledby': 'models-title' },
      h('header', null, h('h2', { id: 'models-title' }, 'Models')),
      h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null,
        ['Name', 'State', 'Memory', 'Running', 'Last used', ''].map((name) => h('th', { scope: 'col' }, name)))), this.rows)), this.error);
    this.select = h('select', { id: 'chat-model', onchange: (event) => localStorage.setItem(STORE, event.target.value) });
    this.picker = h('div', { class: 'field', hidden: true }, h('label', { htmlFor: 'chat-model' }, 'Model'), this.select);
    this.names = '';
  }

  // The model that the chat asks.
  get chosen() { return this.picker.hidden ? 'default' : this.select.value; }

  update(models, main) {
    const several = models.length > 1, names = models.map((m) => m.name).join('\n');
    this.el.hidden = this.picker.hidden = !several;
    if (!several) return;
    this.draw(models);
    if (names === this.names) return;
    const wanted = this.select.value || localStorage.getItem(STORE) || main;
    this.names = names;
    this.select.replaceChildren(...models.map((m) => h('option', { value: m.name, selected: m.name === wanted }, m.name)));
  }
  // Only changes: a button that is replaced under the pointer cannot be pressed.
  draw(models) {
    const ago = (m) => (m.used_at === null ? '–' : `${duration(Math.max(0, Date.now() / 1000 - m.used_at))} ago`);
    const drawn = JSON.stringify(models.map((m) => [m.name, m.state, m.error, m.pinned, m.kept]));
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      this.rows.replaceChildren(...models.map((m) => this.row(m)));
      this.pick();
    }
    models.forEach((m, i) => {
      const cells = this.rows.children[i].children;
      [m.memory > 0 ? bytes(m.memory) : '–', count(m.running), ago(m)].forEach((text, k) => setText(cells[2 + k], text));
    });
  }

  row(m) {
    const state = m.pinned ? `${m.state}, pinned` : m.kept && m.state === 'loaded' ? `${m.state}, kept` : m.state;
    const names = m.state === 'loaded' ? (m.pinned ? [] : m.kept ? ['Unload'] : ['Keep loaded', 'Unload'])
      : m.state === 'loading' || m.state === 'unloading' ? [] : ['Load'];
    return h('tr', null, h('th', { scope: 'row' }, button(m.name, () => this.pick(m.name), { class: 'link' })), h('td', { class: `${TONES[m.state] ?? ''}-text`, title: m.error ?? '' }, state),
      h('td'), h('td'), h('td'), h('td', { class: 'actions' }, names.map((name) =>
        button(name, () => this.keep(m.name, KEEP[name]), { class: 'small', 'aria-label': `${name}: ${m.name}` }))));
  }

  async keep(model, keep_alive) {
    this.error.hidden = true;
    try {
      await ask('/api/generate', { body: { model, prompt: '', stream: false, keep_alive } });
    } catch (error) {
      setText(this.error, error.message);
      this.error.hidden = false;
    }
  }
}
