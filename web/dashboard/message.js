// Draws one message of a conversation: text, reasoning, tool calls, probabilities, timings.
import { h, button, copyButton } from './dom.js';
import { count, fixed, percent, seconds } from './format.js';
import { codeBlock, markdown } from './markdown.js';

function reasoning(message) {
  return h('details', { class: 'reasoning', open: message.streaming && !message.content }, h('summary', null,
    message.streaming && !message.content ? 'Thinking…' : 'Thoughts'), h('div', { class: 'prose' }, markdown(message.reasoning)));
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function toolCall(call, message, on) {
  const answer = h('textarea', { rows: 2, placeholder: 'Result of the tool', 'aria-label': `Result of ${call.name}` });
  return h('div', { class: 'tool-call' }, h('p', null, 'Calls the tool ', h('code', null, call.name || '…')),
    codeBlock(pretty(call.arguments), 'json'),
    on.result === undefined || message.streaming ? null : h('div', { class: 'tool-result' }, answer,
      button('Send result', () => on.result(call, answer.value), { class: 'small' })));
}

// A token's colour shows how sure the model was; the pointer or the arrow keys show the alternatives.
const sureness = (logprob) => ['low', 'fair', 'good', 'sure'][Math.min(3, Math.floor(Math.exp(logprob) * 4))];
const visible = (text) => JSON.stringify(text).slice(1, -1);

export function tokenView(odds, tip) {
  const view = h('div', { class: 'tokens', tabindex: 0, role: 'group', 'aria-label': 'Tokens; arrow keys go through them' });
  const spans = odds.map((token) => h('span', { class: `token ${sureness(token.logprob)}` }, token.token));
  let at = -1;
  const show = (i) => {
    spans[at]?.classList.remove('at');
    at = i;
    tip.hidden = i < 0;
    if (i < 0) return;
    spans[i].classList.add('at');
    const token = odds[i], list = token.top_logprobs ?? [];
    tip.replaceChildren(h('b', null, `${visible(token.token)}  ${percent(Math.exp(token.logprob), 1)}`),
      ...list.map((other) => h('span', { class: other.token === token.token ? 'chosen' : null },
        h('code', null, visible(other.token)), h('span', { class: 'num' }, percent(Math.exp(other.logprob), 1)))));
    const spot = spans[i].getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(innerWidth - 220, spot.left))}px`;
    tip.style.top = `${spot.bottom + 6 + tip.offsetHeight > innerHeight ? spot.top - tip.offsetHeight - 6 : spot.bottom + 6}px`;
  };
  view.append(...spans);
  view.addEventListener('pointerover', (event) => show(spans.indexOf(event.target)));
  view.addEventListener('pointerleave', () => show(-1));
  view.addEventListener('blur', () => show(-1));
  view.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    show(Math.max(0, Math.min(spans.length - 1, at + step)));
  });
  return view;
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
  // on: the actions edit, retry and result; those that do not apply are undefined.
  constructor(message, on, tip) {
    Object.assign(this, { message, on, tip });
    this.body = h('div', { class: 'prose' });
    this.foot = h('footer');
    const who = { user: 'You', assistant: 'Model', tool: 'Tool result' }[message.role];
    this.el = h('article', { class: `message ${message.role}`, 'aria-label': who }, h('h3', null, who), this.body, this.foot);
    this.draw();
  }

  draw() {
    const m = this.message;
    this.el.classList.toggle('streaming', m.streaming === true);
    if (m.role === 'assistant') this.drawAnswer();
    else this.body.replaceChildren(h('p', { class: 'plain' }, m.content));
    this.drawFoot();
  }

  drawAnswer() {
    const m = this.message, parts = [];
    if (m.reasoning) parts.push(reasoning(m));
    if (this.asTokens && m.odds?.length > 0) parts.push(tokenView(m.odds, this.tip));
    else if (m.content) parts.push(...markdown(m.content));
    for (const call of m.calls ?? []) parts.push(toolCall(call, m, this.on));
    if (m.streaming && parts.length === 0) parts.push(h('p', { class: 'soft waiting' }, 'Waiting for the first token…'));
    if (m.cut) parts.push(h('p', { class: 'note' }, m.cut === 'stopped' ? 'Stopped.' : `Cut off: ${m.cut}`));
    if (m.error) parts.push(h('p', { class: 'error-box', role: 'alert' }, m.error));
    // Details that the reader has opened stay open while the answer grows.
    const open = this.body.querySelector('details.reasoning')?.open;
    this.body.replaceChildren(...parts);
    const details = this.body.querySelector('details.reasoning');
    if (details !== null && open !== undefined && m.streaming) details.open = open;
  }

  drawFoot() {
    const m = this.message;
    if (m.streaming) { this.foot.replaceChildren(timings(m)); return; }
    const tools = [m.content ? copyButton(() => m.content) : null];
    if (this.on.edit) tools.push(button('Edit', () => this.edit(), { class: 'quiet small' }));
    if (this.on.retry) tools.push(button('Retry', this.on.retry, { class: 'quiet small' }));
    if (m.odds?.length > 0) tools.push(button(this.asTokens ? 'Text' : 'Probabilities', () => {
      this.asTokens = !this.asTokens;
      this.draw();
    }, { class: 'quiet small', 'aria-pressed': String(this.asTokens === true) }));
    this.foot.replaceChildren(...[m.role === 'assistant' ? timings(m) : null, h('div', { class: 'tools' }, tools)].filter(Boolean));
  }

  edit() {
    const area = h('textarea', { rows: 4, 'aria-label': 'Edit the message' });
    area.value = this.message.content;
    const send = () => this.on.edit(area.value);
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
      if (event.key === 'Escape') { event.stopPropagation(); this.draw(); }
    });
    this.body.replaceChildren(area);
    this.foot.replaceChildren(h('div', { class: 'tools' }, button('Send again', send, { class: 'small primary' }),
      button('Cancel', () => this.draw(), { class: 'quiet small' })));
    area.focus();
  }
}
