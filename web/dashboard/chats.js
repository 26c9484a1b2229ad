// All conversations, stored in this browser's IndexedDB. They are all kept in memory too: a search reads every one.
import { clean, fresh } from './conversation.js';

const OLD = 'shoal.chats'; // where version 0.1 kept them, in localStorage
const DEFAULTS = 'shoal.chat-settings'; // what new conversations start with
const OPEN_MS = 5000;

const finished = (transaction) => new Promise((resolve, reject) => {
  transaction.oncomplete = resolve;
  transaction.onabort = () => reject(transaction.error ?? new Error('the write was aborted')); // every error ends in an abort
});

function openStore() {
  return new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`no answer in ${OPEN_MS / 1000} s`)), OPEN_MS);
    const request = indexedDB.open('shoal', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('chats', { keyPath: 'id' });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// One conversation, or all of them without an id.
function read(store, id) {
  return new Promise((resolve, reject) => {
    const chats = store.transaction('chats').objectStore('chats'), request = id === undefined ? chats.getAll() : chats.get(id);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// Answers that were streaming when the page was closed end there.
function settle(chat) {
  for (const m of chat.messages) {
    if (m.streaming) m.cut = 'the page was closed';
    delete m.streaming;
  }
  return chat;
}

export class Chats {
  // on.problem(text) says what cannot be stored, '' that all is well again; on.change(chat) is another tab's doing.
  constructor(on) {
    this.on = on;
    this.all = [];
    this.writing = new Map(); // id -> is there something newer than what is being written?
    this.current = fresh(this.defaults);
    this.all.push(this.current);
  }

  get defaults() {
    try { return clean({ settings: JSON.parse(localStorage.getItem(DEFAULTS) ?? '{}'), messages: [] }, '').settings; } catch { return {}; }
  }

  set defaults(settings) { localStorage.setItem(DEFAULTS, JSON.stringify(settings)); }

  async open() {
    try {
      this.store = await openStore();
      const broken = await this.load();
      if (broken > 0) this.on.problem(`${broken} stored conversations cannot be read and are left out.`);
      this.tabs = new BroadcastChannel('shoal.chats');
      this.tabs.onmessage = (event) => this.changedElsewhere(String(event.data));
    } catch (error) {
      this.on.problem(`Conversations cannot be stored in this browser and are gone when the page closes: ${error.message}`);
    }
  }

  async load() {
    let broken = 0;
    const stored = [];
    for (const value of await read(this.store)) {
      try { stored.push(clean(settle(value), 'stored')); } catch { broken++; }
    }
    for (const chat of this.takeOld()) stored.push(chat);
    this.all = [...stored.sort((a, b) => b.at - a.at), ...this.all.filter((chat) => chat.messages.length > 0)];
    if (this.all.length === 0) this.all = [fresh(this.defaults)];
    if (!this.all.includes(this.current)) this.current = this.all[0];
    return broken;
  }

  takeOld() {
    const out = [];
    try {
      for (const old of JSON.parse(localStorage.getItem(OLD) ?? '[]')) {
        const messages = settle(old).messages.map((m, i) => ({ ...m, parent: i - 1, logprobs: m.odds }));
        out.push(clean({ ...old, messages }, 'stored'));
      }
      Promise.all(out.map((chat) => this.save(chat))).then(() => localStorage.removeItem(OLD));
    } catch { /* nothing that could be kept */ }
    return out;
  }

  sort() { this.all.sort((a, b) => b.at - a.at); }

  // An empty conversation; there is never more than one.
  add() {
    const empty = this.all.find((chat) => chat.messages.length === 0);
    this.current = empty ?? fresh(this.defaults);
    if (empty === undefined) this.all.unshift(this.current);
  }

  take(chats) {
    this.all.push(...chats);
    this.sort();
    return Promise.all(chats.map((chat) => this.save(chat)));
  }

  remove(chat) {
    this.all = this.all.filter((one) => one !== chat);
    if (this.all.length === 0) this.all = [fresh(this.defaults)];
    if (this.current === chat) this.current = this.all[0];
    this.write(chat.id, (chats) => chats.delete(chat.id));
  }

  restore(chat) {
    this.all.push(chat);
    this.sort();
    this.current = chat;
    return this.save(chat);
  }

  // Stores a conversation. One write of each at a time; what changes meanwhile is written after it.
  async save(chat) {
    if (this.store === undefined || chat.messages.length === 0) return;
    if (this.writing.has(chat.id)) { this.writing.set(chat.id, true); return; }
    this.writing.set(chat.id, false);
    await this.write(chat.id, (chats) => chats.put(chat));
    const again = this.writing.get(chat.id) && this.all.includes(chat);
    this.writing.delete(chat.id);
    if (again) await this.save(chat);
  }

  async write(id, change) {
    if (this.store === undefined) return;
    try {
      const transaction = this.store.transaction('chats', 'readwrite'), end = finished(transaction);
      change(transaction.objectStore('chats'));
      transaction.commit?.(); // at once: a page that is being closed would lose it
      await end;
      this.tabs?.postMessage(id);
      if (this.failed) this.on.problem('');
      this.failed = false;
    } catch (error) {
      this.failed = true;
      this.on.problem(error.name === 'QuotaExceededError'
        ? 'The browser’s storage is full: the latest changes are not stored. Export what you need, then delete conversations.'
        : `The latest changes are not stored: ${error.message}`);
    }
  }

  // Another tab has stored or deleted a conversation.
  async changedElsewhere(id) {
    const mine = this.all.find((chat) => chat.id === id);
    const value = await read(this.store, id);
    if (this.writing.has(id)) return;
    if (value === undefined) { if (mine !== undefined && mine !== this.current) this.all = this.all.filter((chat) => chat !== mine); }
    else {
      let chat;
      try { chat = clean(settle(value), 'stored'); } catch { return; }
      if (mine === undefined) this.all.push(chat);
      else if (!mine.messages.some((m) => m.streaming)) Object.assign(mine, chat);
      this.sort();
    }
    this.on.change(mine);
  }
}
