// Conversations, stored in this browser only.

const STORE = 'shoal.chats', MAX = 50;

const fresh = () => ({ id: crypto.randomUUID?.() ?? String(Math.random()), at: Date.now(), title: '', messages: [] });

export class Chats {
  constructor() {
    this.all = [];
    try {
      const stored = JSON.parse(localStorage.getItem(STORE) ?? '[]');
      if (Array.isArray(stored)) this.all = stored.filter((chat) => Array.isArray(chat?.messages));
    } catch { /* start over if it cannot be read */ }
    if (this.all.length === 0) this.all = [fresh()];
    this.current = this.all[0];
    // Answers that were cut off when the page was closed.
    for (const chat of this.all)
      for (const message of chat.messages) if (message.streaming) { message.streaming = false; message.cut = 'the page was closed'; }
  }

  add() {
    const empty = this.all.find((chat) => chat.messages.length === 0);
    this.current = empty ?? fresh();
    if (empty === undefined) this.all.unshift(this.current);
    this.all.length = Math.min(this.all.length, MAX);
    this.save();
  }

  remove(chat) {
    this.all = this.all.filter((one) => one !== chat);
    if (this.all.length === 0) this.all = [fresh()];
    if (this.current === chat) this.current = this.all[0];
    this.save();
  }

  // When the storage is full, the oldest conversations are dropped.
  save() {
    let kept = this.all;
    for (;;) {
      try {
        localStorage.setItem(STORE, JSON.stringify(kept.filter((chat) => chat.messages.length > 0)));
        return;
      } catch {
        if (kept.length < 2) return;
        kept = kept.slice(0, -1);
      }
    }
  }
}

export function titleOf(chat) {
  return chat.title || chat.messages.find((m) => m.role === 'user')?.content.slice(0, 60) || 'New conversation';
}
