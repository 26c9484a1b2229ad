// The chat: conversations on the left, messages in the middle, one answer at a time.
import { h, button } from './dom.js';
import { ApiError, ask, events } from './feed.js';
import { Chats, titleOf } from './chats.js';
import { Controls } from './controls.js';
import { MessageView } from './message.js';

const DRAW_MS = 60;

// A conversation in the format of the API; answers that were cut off before any text are left out.
function wire(messages, system) {
  const out = system === '' ? [] : [{ role: 'system', content: system }];
  for (const m of messages) {
    if (m.role === 'assistant') {
      if (!m.content && !m.calls?.length) continue;
      out.push({ role: 'assistant', content: m.content, ...(m.calls?.length > 0 ? { tool_calls: m.calls.map((c) => ({
        id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } })) } : {}) });
    } else if (m.role === 'tool') out.push({ role: 'tool', tool_call_id: m.call_id, content: m.content });
    else out.push({ role: m.role, content: m.content });
  }
  return out;
}

// Adds one chunk of the stream to the message.
function take(message, chunk, started) {
  if (chunk.error) throw new ApiError(0, String(chunk.error.message ?? 'the answer failed'));
  const choice = chunk.choices?.[0], delta = choice?.delta ?? {};
  if (delta.content || delta.reasoning_content || delta.tool_calls) {
    message.timing.first_s ??= (performance.now() - started) / 1000;
    message.timing.chunks = (message.timing.chunks ?? 0) + 1;
    const passed = (performance.now() - started) / 1000 - message.timing.first_s;
    if (passed > 0.2) message.timing.rate = message.timing.chunks / passed;
  }
  message.content += delta.content ?? '';
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) {
    const mine = ((message.calls ??= [])[call.index ?? 0] ??= { id: '', name: '', arguments: '' });
    mine.id = call.id ?? mine.id;
    mine.name += call.function?.name ?? '';
    mine.arguments += call.function?.arguments ?? '';
  }
  if (choice?.logprobs?.content) (message.odds ??= []).push(...choice.logprobs.content.map((t) => ({
    token: t.token, logprob: t.logprob, top_logprobs: t.top_logprobs?.map((o) => ({ token: o.token, logprob: o.logprob })) })));
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.usage) {
    Object.assign(message.timing, { tokens: chunk.usage.completion_tokens, prompt: chunk.usage.prompt_tokens,
      cached: chunk.usage.prompt_tokens_details?.cached_tokens });
    if (chunk.performance?.eval_tokens_per_second > 0) message.timing.rate = chunk.performance.eval_tokens_per_second;
  }
}

export class Chat {
  constructor(onKey, models) {
    this.onKey = onKey;
    this.models = models;
    this.chats = new Chats();
    this.controls = new Controls();
    this.list = h('ul', { class: 'chat-list' });
    this.log = h('div', { class: 'chat-log', role: 'log', 'aria-label': 'Messages', tabindex: 0 });
    this.input = h('textarea', { id: 'chat-input', rows: 1, placeholder: 'Ask the model…', 'aria-label': 'Message' });
    this.send = h('button', { type: 'submit', class: 'primary' }, 'Send');
    this.stop = button('Stop', () => this.abort?.abort(), { class: 'stop', hidden: true });
    this.form = h('form', { class: 'composer' }, this.input, this.send, this.stop);
    this.tip = h('div', { class: 'tip token-tip', hidden: true, role: 'status' });
    this.side = h('aside', { class: 'chat-side', 'aria-label': 'Conversations and settings' },
      button('New conversation', () => this.fresh(), { class: 'wide-button', id: 'chat-new' }), models.picker, this.list,
      h('details', { class: 'chat-settings' }, h('summary', null, 'System prompt and sampling'), this.controls.el));
    this.el = h('div', { class: 'chat' }, this.side,
      h('section', { class: 'card chat-main', 'aria-label': 'Conversation' }, this.log, this.form), this.tip);
    this.listen();
    this.draw();
  }

  listen() {
    this.form.addEventListener('submit', (event) => { event.preventDefault(); this.say(this.input.value); });
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.say(this.input.value);
    });
    this.input.addEventListener('input', () => this.grow());
    this.log.addEventListener('scroll', () => {
      this.tip.hidden = true;
      this.follow = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
    });
    this.follow = true;
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(200, this.input.scrollHeight + 2)}px`;
  }

  get busy() { return this.abort !== undefined; }

  fresh() {
    this.chats.add();
    this.draw();
    this.input.focus();
  }

  say(text) {
    if (text.trim() === '' || this.busy || this.controls.check() !== '') return;
    this.input.value = '';
    this.grow();
    this.chats.current.messages.push({ role: 'user', content: text });
    this.answer();
  }

  // Drops the messages from `index` on, then sends another text or asks for another answer.
  rewind(index, text) {
    if (this.busy) return;
    this.chats.current.messages.length = index;
    if (text === undefined) this.answer();
    else this.say(text);
  }

  result(index, call, text) {
    if (this.busy) return;
    const messages = this.chats.current.messages;
    messages.length = Math.max(index + 1, messages.length);
    messages.push({ role: 'tool', call_id: call.id, content: text });
    this.answer();
  }

  async answer() {
    const chat = this.chats.current, message = { role: 'assistant', content: '', streaming: true, timing: {} };
    chat.at = Date.now();
    this.chats.all.sort((a, b) => b.at - a.at);
    const body = { model: this.models.chosen, messages: wire(chat.messages, this.controls.system), stream: true,
      stream_options: { include_usage: true }, ...this.controls.request() };
    chat.messages.push(message);
    this.abort = new AbortController();
    this.follow = true;
    this.draw();
    try {
      await this.stream(message, body);
    } catch (error) {
      if (this.abort.signal.aborted) message.cut = 'stopped';
      else if (error instanceof ApiError) message.error = error.message;
      else message.cut = `the connection broke (${error.message})`;
      if (error.status === 401) this.onKey();
    }
    message.streaming = false;
    message.timing.tokens ??= message.timing.chunks;
    this.abort = undefined;
    this.chats.save();
    this.draw();
  }

  async stream(message, body) {
    const started = performance.now(), signal = this.abort.signal;
    let drawn = 0, ended = false;
    for await (const data of events(await ask('/v1/chat/completions', { body, signal }))) {
      ended = data === '[DONE]';
      if (ended) break;
      take(message, JSON.parse(data), started);
      if (performance.now() - drawn < DRAW_MS) continue;
      drawn = performance.now();
      this.redraw(message);
    }
    if (!ended) message.cut = 'the server closed the connection';
  }

  redraw(message) {
    const view = this.views?.at(-1);
    if (view?.message !== message) return;
    view.draw();
    if (this.follow) this.log.scrollTop = this.log.scrollHeight;
  }

  draw() {
    this.tip.hidden = true;
    this.stop.hidden = !this.busy;
    this.send.hidden = this.busy;
    this.drawList();
    const messages = this.chats.current.messages;
    this.views = messages.map((m, i) => new MessageView(m, this.actions(m, i, messages.length), this.tip));
    this.log.replaceChildren(...(messages.length > 0 ? this.views.map((view) => view.el) : [this.welcome()]));
    if (this.follow) this.log.scrollTop = this.log.scrollHeight;
  }

  actions(message, index, total) {
    if (message.role === 'user') return { edit: (text) => this.rewind(index, text) };
    if (message.role === 'tool') return {};
    return { retry: () => this.rewind(index),
      result: index === total - 1 ? (call, text) => this.result(index, call, text) : undefined };
  }

  welcome() {
    const ideas = ['Tell me a short story about the sea.', 'What can you do?', 'Once upon a time'];
    return h('div', { class: 'welcome' }, h('h2', null, 'Talk to the model'),
      h('p', { class: 'soft' }, 'Enter sends, Shift+Enter starts a new line, Esc stops. Conversations are stored in this browser only.'),
      h('div', { class: 'ideas' }, ideas.map((idea) => button(idea, () => this.say(idea)))));
  }

  drawList() {
    this.list.replaceChildren(...this.chats.all.map((chat) => h('li', null,
      button(titleOf(chat), () => { if (!this.busy) { this.chats.current = chat; this.follow = true; this.draw(); } },
        { class: 'chat-name', 'aria-current': chat === this.chats.current ? 'true' : null }),
      button('×', () => { if (!this.busy) { this.chats.remove(chat); this.draw(); } },
        { class: 'quiet small', 'aria-label': `Delete ${titleOf(chat)}` }))));
  }

  escape() {
    if (!this.busy) return false;
    this.abort.abort();
    return true;
  }
}
