// Draws one message of a conversation: text, files, reasoning, tool calls, probabilities, timings, and what can be done
// with it.
import { h, button, copyButton } from './dom.js';
import { bytes, count, fixed, seconds } from './format.js';
import { codeBlock } from './code.js';
import { Prose } from './markdown.js';
import { tokenView } from './tokens.js';

const WHO = { user: 'You', assistant: 'Model', tool: 'Tool result' };

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// The calls of an answer, and a field for the result of each: they are sent together.
function toolCalls(calls, send) {
  const answers = calls.map((call) => h('textarea', { rows: 2, placeholder: 'Result of the tool', 'aria-label': `Result of ${call.name}` }));
  const boxes = calls.map((call, i) => h('div', { class: 'tool-call' }, h('p', null, 'Calls the tool ', h('code', null, call.name || '…')),
    codeBlock(pretty(call.arguments), 'json'), send === undefined ? null : answers[i]));
  if (send === undefined) return boxes;
  return [h('div', { class: 'tool-result' }, boxes,
    button(calls.length === 1 ? 'Send result' : 'Send results', () => send(answers.map((area) => area.value)), { class: 'small' }))];
}

function fileList(files) {
  return h('ul', { class: 'files', 'aria-label': 'Attached files' }, files.map((file) => h('li', null, h('details', null,
    h('summary', null, h('span', { class: 'file-name' }, file.name), h('span', { class: 'soft num' }, bytes(file.size))),
    codeBlock(file.text, /\.(\w+)$/.exec(file.name)?.[1] ?? '')))));
}

function timings(m) {
  const t = m.timing ?? {};
  const parts = [
    Number.isFinite(t.rate) ? `${fixed(t.rate)} tok/s` : null,
    Number.isFinite(t.first_s) ? `first token ${seconds(t.first_s)}` : null,
    t.tokens > 0 ? `${count(t.tokens)} tokens` : null,
    t.cached > 0 ? `${count(t.cached)} of ${count(t.prompt)} from the cache` : null,
    m.finish === 'length' ? 'cut off at the maximum length' : null,
  ].filter(Boolean);
  return h('p', { class: 'timings' }, parts.join(' · '));
}

export class MessageView {
  constructor(message, tip) {
    Object.assign(this, { message, tip, on: {} });
    this.prose = new Prose();
    this.thoughts = new Prose();
    this.summary = h('summary');
    this.reasoning = h('details', { class: 'reasoning', hidden: true }, this.summary, this.thoughts.el);
    this.rest = h('div', { class: 'rest' });
    this.body = h('div', { class: 'body' }, this.reasoning, this.prose.el, this.rest);
    this.foot = h('footer');
    this.el = h('article', { class: `message ${message.role}`, 'aria-label': WHO[message.role] }, h('h3', null, WHO[message.role]), this.body, this.foot);
  }

  // on: the actions edit, again, result and the branches { at, of, go }; those that do not apply are undefined.
  update(on) {
    this.on = on;
    this.draw();
  }

  draw() {
    if (this.editing) return;
    const m = this.message;
    this.el.classList.toggle('streaming', m.streaming === true);
    if (m.role === 'assistant') this.drawAnswer();
    else this.drawText();
    this.drawFoot();
  }

  drawText() {
    const m = this.message;
    this.prose.el.replaceChildren(...(m.content === '' && m.files?.length > 0 ? [] : [h('p', { class: 'plain' }, m.content)]));
    this.rest.replaceChildren(...(m.files?.length > 0 ? [fileList(m.files)] : []));
    this.body.replaceChildren(this.prose.el, this.rest);
  }

  drawAnswer() {
    const m = this.message, asTokens = this.asTokens && m.logprobs?.length > 0;
    this.reasoning.hidden = !m.reasoning;
    if (m.reasoning) {
      this.summary.textContent = m.streaming && !m.content ? 'Thinking…' : 'Thoughts';
      this.thoughts.update(m.reasoning);
    }
    if (asTokens) {
      this.prose.clear();
      this.prose.el.replaceChildren(tokenView(m.logprobs, this.tip));
    } else this.prose.update(m.content);
    this.prose.el.hidden = !m.content;
    const calls = m.calls?.length > 0 ? toolCalls(m.calls, m.streaming ? undefined : this.on.result) : [];
    this.rest.replaceChildren(...calls, ...this.notes());
  }

  notes() {
    const m = this.message, out = [];
    if (m.streaming && !m.content && !m.reasoning && !m.calls) out.push(h('p', { class: 'soft waiting' }, 'Waiting for the first token…'));
    if (m.cut) out.push(h('p', { class: 'note' }, m.cut === 'stopped' ? 'Stopped.' : `Cut off: ${m.cut}`));
    if (m.error) out.push(h('p', { class: 'error-box', role: 'alert' }, m.error));
    if ((m.error || (m.cut && m.cut !== 'stopped')) && this.on.again)
      out.push(h('p', null, button('Try again', this.on.again, { class: 'small try-again' })));
    return out;
  }

  drawFoot() {
    const m = this.message;
    if (m.streaming) { this.foot.replaceChildren(timings(m)); return; }
    const tools = [m.content ? copyButton(() => m.content) : null];
    if (this.on.edit) tools.push(button('Edit', () => this.edit(), { class: 'quiet small' }));
    if (this.on.again) tools.push(button('Regenerate', this.on.again, { class: 'quiet small' }));
    if (m.logprobs?.length > 0) tools.push(button('Probabilities', () => {
      this.asTokens = !this.asTokens;
      if (!this.asTokens) this.prose.clear();
      this.tip.hidden = true;
      this.draw();
    }, { class: 'quiet small', 'aria-pressed': String(this.asTokens === true) }));
    this.foot.replaceChildren(...[m.role === 'assistant' ? timings(m) : null, this.branches(),
      h('div', { class: 'tools' }, tools)].filter(Boolean));
  }

  branches() {
    const { at, of, go } = this.on.branches ?? { of: 1 };
    if (of < 2) return null;
    return h('span', { class: 'branches', role: 'group', 'aria-label': 'Versions of this message' },
      button('‹', () => go(at - 1), { class: 'quiet small', 'aria-label': 'Previous version', disabled: at === 0 }),
      h('span', { class: 'num' }, `${at + 1} / ${of}`),
      button('›', () => go(at + 1), { class: 'quiet small', 'aria-label': 'Next version', disabled: at === of - 1 }));
  }

  edit() {
    const area = h('textarea', { rows: 4, 'aria-label': 'Edit the message' });
    area.value = this.message.content;
    const end = () => { this.editing = false; this.draw(); };
    const send = () => { if (this.on.edit(area.value)) end(); };
    this.editing = true;
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
      if (event.key === 'Escape') { event.stopPropagation(); end(); }
    });
    this.prose.el.replaceChildren(area);
    this.foot.replaceChildren(h('div', { class: 'tools' }, button('Send as a new branch', send, { class: 'small primary' }),
      button('Cancel', end, { class: 'quiet small' })));
    area.focus();
  }
}
