// The list of conversations, with search, import and export.
import { h, button } from './dom.js';
import { asJson, asMarkdown, fromJson, titleOf } from './conversation.js';
import { dateTime } from './format.js';
import { search } from './search.js';

const MAX_IMPORT = 200 << 20, UNDO_MS = 12000, SEARCH_MS = 120;

function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

const fileName = (title) => title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'conversation';

export function exportMarkdown(chat) { download(`${fileName(titleOf(chat))}.md`, asMarkdown(chat), 'text/markdown'); }

export function exportJson(chats, title) { download(`${fileName(title)}.json`, asJson(chats), 'application/json'); }

// A line of news with at most one thing to do about it. Goes away by itself after `ms`, if that is given, but not
// while it is pointed at or focused.
export class Notice {
  constructor() {
    this.text = h('span');
    this.act = button('', () => { const { action } = this; this.hide(); action?.(); }, { class: 'small' });
    this.el = h('div', { class: 'chat-notice', role: 'status', hidden: true }, this.text, this.act,
      button('×', () => this.hide(), { class: 'quiet small', 'aria-label': 'Dismiss' }));
  }

  show(text, { label, action, ms, bad } = {}) {
    clearTimeout(this.timer);
    this.action = action;
    this.text.textContent = text;
    this.act.textContent = label ?? '';
    this.act.hidden = label === undefined;
    this.el.classList.toggle('bad', bad === true);
    this.el.hidden = text === '';
    if (ms !== undefined) this.later(ms);
  }

  later(ms) {
    this.timer = setTimeout(() => { if (this.el.matches(':hover, :focus-within')) this.later(1000); else this.hide(); }, ms);
  }

  hide() {
    clearTimeout(this.timer);
    this.el.hidden = true;
  }
}

export class Sidebar {
  // on.fresh(), on.open(chat, index of the message or -1), on.removed(), on.running(chat)
  constructor(chats, notice, settings, picker, on) {
    Object.assign(this, { chats, notice, on });
    this.query = h('input', { type: 'search', id: 'chat-search', placeholder: 'Search conversations', 'aria-label': 'Search all conversations' });
    this.found = h('p', { class: 'soft found', role: 'status', hidden: true });
    this.list = h('ul', { class: 'chat-list' });
    this.file = h('input', { type: 'file', accept: '.json,application/json', hidden: true, id: 'chat-import', 'aria-label': 'Exported conversations' });
    this.el = h('aside', { class: 'chat-side', 'aria-label': 'Conversations and settings' },
      h('div', { class: 'side-head' }, button('New conversation', () => on.fresh(), { class: 'wide-button', id: 'chat-new' }),
        button('Close', () => this.open(false), { class: 'quiet side-close' })),
      this.query, this.found, this.list,
      h('div', { class: 'side-tools' }, button('Import', () => this.file.click(), { class: 'quiet small' }),
        button('Export all', () => this.exportAll(), { class: 'quiet small' }), this.file),
      picker, h('details', { class: 'chat-settings' }, h('summary', null, 'System prompt and sampling'), settings));
    this.listen();
  }

  listen() {
    this.query.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.draw(), SEARCH_MS);
    });
    this.query.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') { event.preventDefault(); this.draw(); this.list.querySelector('.chat-name')?.click(); }
      if (event.key === 'Escape' && this.query.value !== '') { event.stopPropagation(); this.query.value = ''; this.draw(); }
    });
    this.list.addEventListener('keydown', (event) => this.step(event));
    this.file.addEventListener('change', () => { this.import(this.file.files[0]); this.file.value = ''; });
  }

  // The arrow keys go through the list.
  step(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], names = [...this.list.querySelectorAll('.chat-name')];
    const at = names.indexOf(document.activeElement);
    if (step === undefined || at < 0) return;
    event.preventDefault();
    names[at + step]?.focus();
  }

  // On a phone the list is a sheet over the conversation.
  open(on) { this.el.classList.toggle('open', on); }

  get isOpen() { return this.el.classList.contains('open'); }

  draw() {
    const query = this.query.value.trim(), held = document.activeElement?.closest?.('.chat-list li')?.dataset.id;
    const rows = query === '' ? this.chats.all.map((chat) => ({ chat, index: -1, snippet: null })) : search(this.chats.all, query);
    this.found.hidden = query === '';
    this.found.textContent = rows.length === 0 ? 'Nothing found' : `${rows.length} ${rows.length === 1 ? 'conversation' : 'conversations'}`;
    this.list.replaceChildren(...rows.map((row) => this.row(row)));
    if (held !== undefined) [...this.list.children].find((li) => li.dataset.id === held)?.querySelector('.chat-name').focus();
  }

  row({ chat, index, snippet }) {
    const title = titleOf(chat), running = this.on.running(chat);
    return h('li', { 'data-id': chat.id },
      h('button', { type: 'button', class: 'chat-name', title: `${title}\n${dateTime(chat.at)}`, 'aria-current': chat === this.chats.current ? 'true' : null,
        onclick: () => this.on.open(chat, index) }, h('span', { class: 'name' }, title),
      running ? h('span', { class: 'running', role: 'img', 'aria-label': 'answering' }) : null,
      snippet === null ? null : h('span', { class: 'snippet' }, snippet[0], h('mark', null, snippet[1]), snippet[2])),
      button('×', () => this.remove(chat), { class: 'quiet small', 'aria-label': `Delete ${title}` }));
  }

  remove(chat) {
    if (this.on.running(chat)) { this.notice.show('This conversation is being answered. Stop the answer before you delete it.', { bad: true, ms: UNDO_MS }); return; }
    this.chats.remove(chat);
    this.on.removed();
    if (chat.messages.length === 0) return;
    this.notice.show(`Deleted “${titleOf(chat)}”.`, { label: 'Undo', ms: UNDO_MS, action: () => { this.chats.restore(chat); this.on.removed(); } });
  }

  exportAll() {
    const chats = this.chats.all.filter((chat) => chat.messages.length > 0);
    if (chats.length === 0) this.notice.show('There is no conversation to export yet.', { ms: UNDO_MS });
    else exportJson(chats, `shoal-conversations-${new Date().toISOString().slice(0, 10)}`);
  }

  async import(file) {
    if (file === undefined) return;
    try {
      if (file.size > MAX_IMPORT) throw new Error('it is larger than 200 MiB');
      const chats = fromJson(await file.text());
      await this.chats.take(chats);
      this.draw();
      this.notice.show(`Imported ${chats.length} ${chats.length === 1 ? 'conversation' : 'conversations'} from ${file.name}.`, { ms: UNDO_MS });
    } catch (error) {
      this.notice.show(`${file.name} is not imported: ${error.message}.`, { bad: true });
    }
  }
}
