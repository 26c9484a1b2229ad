// Changes of the cluster: restart, drain, hosts that come and go. What cannot be done here is left out, with the reason.
import { h, button, setText, setClass } from './dom.js';
import { ask, askJson } from './feed.js';

const SHOWN_S = 60; // for so long the end of a change is shown on the overview
const WORDS = { restart: () => 'Restarting the cluster', add: (host) => `Adding ${host}`, remove: (host) => `Removing ${/^\d+$/.test(host) ? `rank ${host}` : host}` };
const TONES = { running: 'warn', done: 'good', failed: 'bad' };

function changeText(change) {
  const what = WORDS[change.what]?.(change.host) ?? 'Changing the cluster';
  if (change.state === 'running') return `${what}…`;
  return change.state === 'done' ? change.said || `${what}: done` : `${what} failed: ${change.said}`;
}

// A button that asks before it acts.
function careful(label, question, act, props) {
  const el = h('span', { class: 'careful' });
  const rest = () => el.replaceChildren(first);
  const first = button(label, () => {
    const yes = button(label, () => { rest(); act(); }, { class: 'danger small' });
    el.replaceChildren(h('span', { class: 'question' }, question), yes, button('Cancel', () => { rest(); first.focus(); }, { class: 'quiet small' }));
    yes.focus();
  }, props);
  rest();
  return el;
}

export class Operate {
  constructor(askKey) {
    this.askKey = askKey;
    this.button = button('Manage', () => this.open(), { class: 'quiet small', id: 'manage' });
    this.notice = h('p', { class: 'notice', id: 'change', role: 'status', hidden: true });
    this.state = h('p', { class: 'notice', role: 'status', hidden: true });
    this.error = h('p', { class: 'error-box', role: 'alert', hidden: true });
    this.body = h('div', { class: 'operate' });
    this.el = h('dialog', { id: 'operate', 'aria-labelledby': 'operate-title' },
      h('header', { class: 'row' }, h('h2', { id: 'operate-title' }, 'Manage the cluster'),
        button('Close', () => this.el.close(), { class: 'quiet small' })), this.state, this.error, this.body);
    document.body.append(this.el);
    this.ranks = [];
    this.key = '';
  }

  async open() {
    this.fail('');
    this.el.showModal();
    await this.load();
  }

  async load() {
    try {
      this.facts = await askJson('/cluster');
      this.draw();
    } catch (error) { this.fail(error.message); }
  }

  fail(message) {
    setText(this.error, message);
    this.error.hidden = message === '';
  }

  async order(path, options) {
    this.fail('');
    try {
      this.facts = await (await ask(path, options)).json();
      this.say(this.facts.change);
      this.draw();
    } catch (error) { this.fail(error.message); }
  }

  // With each snapshot. The list is drawn again only when it is another one: a question may be open in it.
  update(snapshot, ranks) {
    const change = snapshot.change ?? null;
    const key = JSON.stringify([change?.id, change?.state, ranks.map((r) => [r.rank, r.host]), snapshot.status === 'draining']);
    this.ranks = ranks;
    this.say(change);
    if (key === this.key) return;
    this.key = key;
    if (this.el.open) this.load();
  }

  say(change) {
    const recent = change !== null && (change.state === 'running' || Date.now() / 1000 - change.at < SHOWN_S);
    for (const el of [this.notice, this.state]) {
      el.hidden = !(recent || (el === this.state && change !== null));
      if (el.hidden) continue;
      setText(el, changeText(change));
      setClass(el, `notice ${TONES[change.state] ?? ''}`);
    }
  }

  draw() {
    const f = this.facts;
    if (!f.allowed) {
      this.body.replaceChildren(h('p', null, `Nothing can be changed from here: ${f.forbidden}.`),
        button('Use another key', () => { this.el.close(); this.askKey(); }));
      return;
    }
    this.body.replaceChildren(this.hosts(f), ...(f.launched ? [this.restart(f)] : []), this.drain(f));
  }

  hosts(f) {
    const busy = f.change?.state === 'running';
    const remove = (rank) => careful('Remove', `Remove rank ${rank.rank}?`,
      () => this.order(`/cluster/hosts/${rank.rank}`, { method: 'DELETE' }), { class: 'small', disabled: busy });
    const rows = this.ranks.map((rank) => h('li', null, h('span', null, h('b', null, rank.host || 'this host'), h('span', { class: 'soft' }, ` rank ${rank.rank}`)),
      rank.rank === 0 ? h('span', { class: 'soft' }, 'serves the API') : f.launched ? remove(rank) : null));
    const list = h('section', null, h('h3', null, 'Hosts'), h('ul', { class: 'host-list' }, rows));
    list.append(f.launched ? this.adding(busy) : h('p', { class: 'soft' }, `Hosts and restart: ${f.unavailable}.`));
    return list;
  }

  adding(busy) {
    const input = h('input', { id: 'new-host', placeholder: 'user@host', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off', required: true });
    const form = h('form', { class: 'line' }, h('label', { htmlFor: 'new-host' }, 'Add a host'), input,
      h('button', { type: 'submit', disabled: busy }, 'Add'));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (input.value.trim() !== '') this.order('/cluster/hosts', { body: { host: input.value.trim() } });
    });
    return h('div', null, form, h('p', { class: 'soft hint' }, 'What ssh connects to from the machine of the launcher, with its keys.'));
  }

  restart(f) {
    return h('section', null, h('h3', null, 'Restart'), h('p', { class: 'soft hint' }, 'Renews all ranks and the API. Running answers go on afterwards.'),
      careful('Restart', 'Restart all ranks?', () => this.order('/cluster/restart', { body: {} }), { disabled: f.change?.state === 'running' }));
  }

  drain(f) {
    const set = (drain) => this.order('/cluster/drain', { body: { drain } });
    const text = f.draining ? `The server refuses new requests. ${f.running} ${f.running === 1 ? 'is' : 'are'} still running.`
      : 'Finishes running answers and refuses new requests, for example before maintenance.';
    return h('section', null, h('h3', null, 'Drain'), h('p', { class: 'soft hint' }, text),
      f.draining ? button('Take requests again', () => set(false), { class: 'primary' })
        : careful('Drain', 'Refuse new requests?', () => set(true)));
  }
}
