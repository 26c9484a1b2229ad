// The chat: conversations on the left, the messages of one of them in the middle. Each conversation can have one answer
// under way; it goes on while another conversation is shown.
import { h, button } from './dom.js';
import { Painter, streamAnswer } from './answer.js';
import { Chats } from './chats.js';
import { Composer } from './composer.js';
import { Controls } from './controls.js';
import { add, children, choose, path, titleOf, wire } from './conversation.js';
import { MessageView } from './message.js';
import { Notice, Sidebar, exportJson, exportMarkdown } from './sidebar.js';

const SAVE_MS = 3000; // a streaming answer is stored this often
const AT_END = 24; // pixels
const IDEAS = ['Tell me a short story about the sea.', 'What can you do?', 'Once upon a time'];

export class Chat {
  constructor(onKey, models) {
    Object.assign(this, { onKey, models });
    this.running = new Map(); // conversation -> AbortController
    this.views = new Map(); // message -> its view
    this.follow = true;
    this.notice = new Notice();
    this.problem = new Notice();
    this.chats = new Chats({ problem: (text) => this.problem.show(text, { bad: true }), change: () => this.draw() });
    this.controls = new Controls(() => this.settingsChanged());
    this.composer = new Composer({ send: (text, files) => this.say(text, files), stop: () => this.running.get(this.current)?.abort() });
    this.input = this.composer.input;
    this.tip = h('div', { class: 'tip token-tip', hidden: true, role: 'status' });
    this.side = new Sidebar(this.chats, this.notice, this.controls.el, models.picker, { fresh: () => this.fresh(),
      open: (chat, index) => this.open(chat, index), removed: () => this.draw(), running: (chat) => this.running.has(chat) });
    this.build();
    this.listen();
    this.draw();
    this.ready = this.chats.open().then(() => this.draw());
  }

  get current() { return this.chats.current; }

  get busy() { return this.running.has(this.current); }

  build() {
    this.log = h('div', { class: 'chat-log', role: 'log', 'aria-label': 'Messages', tabindex: 0 });
    this.title = h('input', { class: 'chat-title', 'aria-label': 'Title of the conversation', maxlength: 200, id: 'chat-title' });
    this.latest = button('↓ Latest', () => this.toEnd(), { class: 'latest small', hidden: true });
    this.menu = h('details', { class: 'menu' }, h('summary', { 'aria-label': 'Export or delete this conversation' }, '⋯'), h('div', { class: 'menu-items' },
      button('Export as Markdown', () => this.closeMenu(() => exportMarkdown(this.current)), { class: 'quiet small' }),
      button('Export as JSON', () => this.closeMenu(() => exportJson([this.current], titleOf(this.current))), { class: 'quiet small' }),
      button('Delete', () => this.closeMenu(() => this.side.remove(this.current)), { class: 'quiet small' })));
    this.head = h('div', { class: 'chat-head' },
      button('☰', () => { this.side.open(true); this.side.query.focus(); }, { class: 'quiet small side-open', 'aria-label': 'Conversations and settings' }),
      this.title, this.menu, button('+', () => this.fresh(), { class: 'quiet small side-open', 'aria-label': 'New conversation' }));
    const main = h('section', { class: 'card chat-main', 'aria-label': 'Conversation' }, this.head,
      h('div', { class: 'log-box' }, this.log, this.latest), this.problem.el, this.notice.el, this.composer.el);
    this.composer.takeDrops(main);
    this.el = h('div', { class: 'chat' }, this.side.el, main, this.tip);
  }

  closeMenu(act) {
    this.menu.open = false;
    act();
  }

  listen() {
    this.log.addEventListener('scroll', () => this.scrolled());
    this.title.addEventListener('change', () => {
      this.current.title = this.title.value.trim();
      this.chats.save(this.current);
      this.draw();
    });
    this.title.addEventListener('keydown', (event) => { if (event.key === 'Enter' && !event.isComposing) this.input.focus(); });
    this.menu.addEventListener('focusout', (event) => { if (!this.menu.contains(event.relatedTarget)) this.menu.open = false; });
    this.models.select.addEventListener('change', () => { this.current.model = this.models.select.value; this.chats.save(this.current); });
  }

  settingsChanged() {
    this.chats.defaults = this.controls.values;
    this.chats.save(this.current);
  }

  // Scrolling up lets go of the end, arriving there holds on to it again.
  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.log;
    this.tip.hidden = true;
    if (scrollHeight - scrollTop - clientHeight < AT_END) this.follow = true;
    else if (scrollTop < this.top) this.follow = false;
    this.top = scrollTop;
    this.latest.hidden = this.follow;
  }

  toEnd() {
    this.follow = true;
    this.latest.hidden = true;
    this.log.scrollTop = this.log.scrollHeight;
    this.top = this.log.scrollTop;
  }

  fresh() {
    this.chats.add();
    this.show();
    this.input.focus();
  }

  // Shows a conversation; with an index, the branch with that message, which is scrolled to.
  open(chat, index) {
    this.chats.current = chat;
    if (index >= 0) {
      if (!path(chat).includes(index)) { choose(chat, index); this.chats.save(chat); }
      this.follow = false;
    }
    this.show(index < 0);
    if (index < 0) return;
    const view = this.views.get(chat.messages[index]);
    view.el.scrollIntoView({ block: 'start' });
    view.el.classList.add('found-here');
    setTimeout(() => view.el.classList.remove('found-here'), 2500);
  }

  show(atEnd = true) {
    this.follow = atEnd;
    this.side.open(false);
    this.draw();
  }

  // Sends a message; false if that is not possible now.
  say(text, files = [], parent = this.current.leaf) {
    if (this.busy || this.controls.check() !== '') return false;
    add(this.current, { role: 'user', content: text, ...(files.length > 0 ? { files } : {}) }, parent);
    this.answer();
    return true;
  }

  edit(index, text) {
    const { parent, files } = this.current.messages[index];
    return (text.trim() !== '' || files?.length > 0) && this.say(text, files, parent);
  }

  // Another answer: a branch of its own, unless the first one is empty.
  again(index) {
    const chat = this.current, message = chat.messages[index];
    if (this.busy || this.controls.check() !== '') return;
    const empty = !message.content && !message.reasoning && !message.calls?.length && !chat.messages.some((m) => m.parent === index);
    chat.leaf = empty ? index : message.parent;
    this.answer(empty ? message : undefined);
  }

  results(index, texts) {
    const chat = this.current, { calls } = chat.messages[index];
    if (this.busy) return;
    texts.forEach((text, i) => add(chat, { role: 'tool', call_id: calls[i].id, content: text }));
    this.answer();
  }

  // Asks the model. `empty` is an answer that failed before any text, which is used again.
  async answer(empty) {
    const chat = this.current, abort = new AbortController(), model = this.models.chosen;
    const body = { model, messages: wire(chat), stream: true, stream_options: { include_usage: true }, ...this.controls.request() };
    for (const name of ['error', 'cut', 'finish']) delete empty?.[name];
    const message = Object.assign(empty ?? add(chat, { role: 'assistant', content: '' }), { streaming: true, timing: {} });
    this.running.set(chat, abort);
    this.chats.sort();
    this.show();
    const painter = new Painter(() => this.redraw(message));
    let saved = performance.now();
    await this.chats.save(chat);
    const status = await streamAnswer(message, body, abort.signal, () => {
      painter.ask();
      if (performance.now() - saved < SAVE_MS) return;
      saved = performance.now();
      this.chats.save(chat);
    });
    this.running.delete(chat);
    this.chats.save(chat);
    this.draw();
    if (status === 401) this.onKey();
  }

  redraw(message) {
    const view = this.views.get(message);
    if (view === undefined || !message.streaming) return;
    view.draw();
    if (this.follow) this.toEnd();
  }

  draw() {
    const chat = this.current, shown = path(chat), groups = children(chat), old = this.views;
    this.tip.hidden = true;
    this.composer.busy(this.busy);
    this.controls.use(chat.settings);
    if ([...this.models.select.options].some((option) => option.value === chat.model)) this.models.select.value = chat.model;
    if (document.activeElement !== this.title) this.title.value = chat.title;
    this.title.placeholder = titleOf(chat);
    this.side.draw();
    this.views = new Map(shown.map((i) => [chat.messages[i], old.get(chat.messages[i]) ?? new MessageView(chat.messages[i], this.tip)]));
    for (const i of shown) this.views.get(chat.messages[i]).update(this.actions(chat, i, groups));
    const els = shown.length > 0 ? [...this.views.values()].map((view) => view.el) : [this.welcome()];
    if (els.length !== this.log.children.length || els.some((el, i) => el !== this.log.children[i])) this.log.replaceChildren(...els);
    if (this.follow) this.toEnd();
  }

  actions(chat, index, groups) {
    const message = chat.messages[index], same = groups.get(message.parent);
    const go = (at) => { if (this.busy) return; choose(chat, same[at]); this.chats.save(chat); this.follow = false; this.draw(); };
    const branches = { at: same.indexOf(index), of: same.length, go };
    if (message.role === 'user') return { branches, edit: (text) => this.edit(index, text) };
    if (message.role === 'tool') return { branches };
    return { branches, again: () => this.again(index), result: index === chat.leaf ? (texts) => this.results(index, texts) : undefined };
  }

  welcome() {
    return h('div', { class: 'welcome' }, h('h2', null, 'Talk to the model'),
      h('p', { class: 'soft' }, 'Enter sends, Shift+Enter starts a new line, Esc stops. Drop text files to attach them. Conversations are stored in this browser only.'),
      h('div', { class: 'ideas' }, IDEAS.map((idea) => button(idea, () => this.say(idea)))));
  }

  find() {
    this.side.open(true);
    this.side.query.focus();
  }

  escape() {
    if (this.menu.open) { this.menu.open = false; return true; }
    if (this.side.isOpen) { this.side.open(false); return true; }
    if (!this.busy) return false;
    this.running.get(this.current).abort();
    return true;
  }
}
