// Where a server has several models: which are loaded, and a choice of one for the chat.
import { h } from './dom.js';
import { bytes, count, duration } from './format.js';

const STORE = 'shoal.chat-model';
const TONES = { loaded: 'good', loading: 'warn', unloading: 'warn', failed: 'bad' };

export class Models {
  constructor() {
    this.rows = h('tbody');
    this.el = h('section', { class: 'card', id: 'models', hidden: true, 'aria-labelledby': 'models-title' },
      h('header', null, h('h2', { id: 'models-title' }, 'Models')),
      h('div', { class: 'scroll' }, h('table', null, h('thead', null, h('tr', null,
        ['Name', 'State', 'Memory', 'Running', 'Last used'].map((name) => h('th', { scope: 'col' }, name)))), this.rows)));
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
    this.rows.replaceChildren(...models.map((m) => h('tr', null, h('th', { scope: 'row' }, m.name),
      h('td', { class: `${TONES[m.state] ?? ''}-text`, title: m.error ?? '' }, m.pinned ? `${m.state}, pinned` : m.state),
      h('td', null, m.memory > 0 ? bytes(m.memory) : '–'), h('td', null, count(m.running)),
      h('td', null, m.used_at === null ? '–' : `${duration(Math.max(0, Date.now() / 1000 - m.used_at))} ago`))));
    if (names === this.names) return;
    const wanted = this.select.value || localStorage.getItem(STORE) || main;
    this.names = names;
    this.select.replaceChildren(...models.map((m) => h('option', { value: m.name, selected: m.name === wanted }, m.name)));
  }
}
