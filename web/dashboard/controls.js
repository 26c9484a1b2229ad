// System prompt and sampling of a conversation. Empty fields are not sent, so that the model's own settings apply.
import { h, button } from './dom.js';

const NUMBERS = [
  ['temperature', 'Temperature', 0, 2, 0.1, 'Randomness of the choice; 0 always takes the likeliest token'],
  ['top_p', 'Top p', 0, 1, 0.05, 'Choose among the likeliest tokens that together reach this probability'],
  ['top_k', 'Top k', 0, 1000, 1, 'Choose among this many of the likeliest tokens; 0: all'],
  ['min_p', 'Min p', 0, 1, 0.01, 'Leave out tokens whose probability is below this fraction of the likeliest’s'],
  ['repetition_penalty', 'Repetition penalty', 0.5, 2, 0.05, 'A value above 1 makes repetition less likely'],
  ['max_tokens', 'Longest answer', 1, 1000000, 1, 'In tokens'],
  ['seed', 'Seed', 0, 2147483647, 1, 'The same seed gives the same answer'],
];
const THINKING = [['', 'default'], ['true', 'on'], ['false', 'off']];

export class Controls {
  constructor(changed) {
    this.changed = changed;
    this.values = {};
    this.problem = h('p', { class: 'bad-text', role: 'alert' });
    this.el = h('div', { class: 'controls' });
    this.draw();
  }

  // Shows and changes the settings of another conversation.
  use(values) {
    if (values === this.values) return;
    this.values = values;
    this.draw();
  }

  field(name, label, input, hint) {
    input.id = `control-${name}`;
    return h('div', { class: 'field', title: hint }, h('label', { htmlFor: input.id }, label), input);
  }

  keep(name, value) {
    if (value === '' || value === false) delete this.values[name];
    else this.values[name] = value;
    this.check();
    this.changed();
  }

  draw() {
    const v = this.values, set = (name) => (event) => this.keep(name, event.target.value);
    const area = (name, rows, hint) => {
      const input = h('textarea', { rows, placeholder: hint, oninput: set(name), spellcheck: 'false' });
      input.value = v[name] ?? '';
      return input;
    };
    const logprobs = h('input', { type: 'checkbox', checked: v.logprobs === true, onchange: (e) => this.keep('logprobs', e.target.checked) });
    const thinking = h('select', { onchange: set('thinking') }, THINKING.map(([value, label]) =>
      h('option', { value, selected: value === (v.thinking ?? '') }, label)));
    this.el.replaceChildren(
      this.field('system', 'System prompt', area('system', 3, 'How the model should behave')),
      h('div', { class: 'field-grid' }, NUMBERS.map(([name, label, min, max, step, hint]) => this.field(name, label,
        h('input', { type: 'number', min, max, step, placeholder: 'model’s', value: v[name] ?? '', oninput: set(name) }), hint)),
      this.field('thinking', 'Reasoning', thinking, 'For models that can reason before they answer')),
      this.field('tools', 'Tools (JSON list)', area('tools', 2, '[{"type": "function", "function": {"name": …}}]')),
      h('label', { class: 'check' }, logprobs, ' Token probabilities'),
      this.problem,
      button('Reset to the model’s own settings', () => {
        for (const name of Object.keys(this.values)) delete this.values[name];
        this.draw();
        this.changed();
      }, { class: 'quiet small' }));
    this.check();
  }

  check() {
    let problem = '';
    try { this.tools(); } catch (error) { problem = `Tools: ${error.message}`; }
    this.problem.textContent = problem;
    return problem;
  }

  tools() {
    const text = (this.values.tools ?? '').trim();
    if (text === '') return undefined;
    const list = JSON.parse(text);
    if (!Array.isArray(list)) throw new Error('not a list');
    return list.length > 0 ? list : undefined;
  }

  // The members of a request's body.
  request() {
    const v = this.values, body = {};
    for (const [name] of NUMBERS) if (v[name] !== undefined && Number.isFinite(Number(v[name]))) body[name] = Number(v[name]);
    if (v.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
    if (v.thinking) body.chat_template_kwargs = { enable_thinking: v.thinking === 'true' };
    body.tools = this.tools();
    return body;
  }
}
