// A conversation: a tree of messages, of which one branch is shown. Messages are in a list in the order of their making;
// `parent` is the place of the one before it in that list, or -1. `leaf` is the last message of the branch shown.
// Also the forms in which it leaves the page: a request to the API, Markdown, JSON.

const FORMAT = 'shoal-chats', VERSION = 1, MAX_MESSAGES = 10000, MAX_TITLE = 200;

export const SETTINGS = ['system', 'temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'max_tokens', 'seed', 'thinking', 'tools', 'logprobs'];

const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`; // only pages from a secure origin have randomUUID

export const fresh = (settings = {}) => ({ id: newId(), at: Date.now(), title: '', model: '', settings: { ...settings }, messages: [], leaf: -1 });

// Adds a message after `parent` and shows its branch.
export function add(chat, message, parent = chat.leaf) {
  chat.messages.push(Object.assign(message, { parent }));
  chat.leaf = chat.messages.length - 1;
  chat.at = Date.now();
  return message;
}

// The places of the messages of the branch shown, the first one first.
export function path(chat) {
  const out = [];
  for (let i = chat.leaf; i >= 0; i = chat.messages[i].parent) out.push(i);
  return out.reverse();
}

// The places of the messages that follow each message: several after one are its branches.
export function children(chat) {
  const out = new Map();
  chat.messages.forEach(({ parent }, i) => { if (!out.get(parent)?.push(i)) out.set(parent, [i]); });
  return out;
}

// Shows the branch with this message, and after it whatever was written last.
export function choose(chat, index) {
  const branch = new Set([index]);
  for (let i = index + 1; i < chat.messages.length; i++) if (branch.has(chat.messages[i].parent)) branch.add(i);
  chat.leaf = Math.max(...branch);
}

export function titleOf(chat) {
  const first = chat.messages.find((m) => m.role === 'user');
  return chat.title || first?.content.trim().slice(0, 60) || first?.files?.[0]?.name || 'New conversation';
}

// A fence longer than any run of backticks in the text, so that the text cannot end it.
function fenced(text, name) {
  const longest = (text.match(/`{3,}/g) ?? []).reduce((max, run) => Math.max(max, run.length), 2);
  const fence = '`'.repeat(longest + 1), language = /\.([A-Za-z0-9+]{1,10})$/.exec(name)?.[1] ?? '';
  return `${fence}${language}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}`;
}

export function textOf(message) {
  const files = (message.files ?? []).map((file) => `File ${file.name}:\n${fenced(file.text, file.name)}\n\n`);
  return files.join('') + message.content;
}

// The branch shown, as messages of the API. Answers that were cut off before any text are left out.
export function wire(chat) {
  const system = (chat.settings.system ?? '').trim(), out = system === '' ? [] : [{ role: 'system', content: system }];
  for (const m of path(chat).map((i) => chat.messages[i])) {
    if (m.role === 'tool') out.push({ role: 'tool', tool_call_id: m.call_id, content: m.content });
    else if (m.role === 'user') out.push({ role: 'user', content: textOf(m) });
    else if (m.content || m.calls?.length > 0) out.push({ role: 'assistant', content: m.content, ...(m.calls?.length > 0 ? {
      tool_calls: m.calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } })) } : {}) });
  }
  return out;
}

const WHO = { user: 'You', assistant: 'Model', tool: 'Tool result' };

export function asMarkdown(chat) {
  const out = [`# ${titleOf(chat).replace(/\s+/g, ' ')}`, `*${new Date(chat.at).toISOString()}${chat.model ? ` · ${chat.model}` : ''}*`];
  if (chat.settings.system) out.push('## System prompt', chat.settings.system);
  for (const m of path(chat).map((i) => chat.messages[i])) {
    out.push(`## ${WHO[m.role]}`);
    if (m.reasoning) out.push(m.reasoning.trim().split('\n').map((line) => `> ${line}`).join('\n'));
    const text = m.role === 'tool' ? fenced(m.content, '') : textOf(m).trim();
    if (text !== '') out.push(text);
    for (const call of m.calls ?? []) out.push(`Calls the tool \`${call.name}\`:`, fenced(call.arguments, 'x.json'));
    if (m.cut || m.error) out.push(`*${m.error ?? (m.cut === 'stopped' ? 'Stopped.' : `Cut off: ${m.cut}`)}*`);
  }
  return `${out.join('\n\n')}\n`;
}

export function asJson(chats) {
  return JSON.stringify({ format: FORMAT, version: VERSION, exported: new Date().toISOString(), conversations: chats }, null, 1);
}

// Checks of what comes from a file. Each returns the clean value, or throws with the place and what is allowed there.
const refuse = (where, allowed) => { throw new Error(`${where} is not ${allowed}`); };
const text = (value, where) => (typeof value === 'string' ? value : refuse(where, 'a text'));
const number = (value, where) => (Number.isFinite(value) ? value : refuse(where, 'a number'));
const scalar = (value, where) => (['string', 'number', 'boolean'].includes(typeof value) ? value : refuse(where, 'a text, a number or true/false'));
const list = (item) => (value, where) => (Array.isArray(value) ? value.map((one, i) => item(one, `${where}[${i}]`)) : refuse(where, 'a list'));
const oneOf = (...allowed) => (value, where) => (allowed.includes(value) ? value : refuse(where, `one of ${allowed.join(', ')}`));

// Members that are not named are dropped; those in `required` must be there.
const object = (members, ...required) => (value, where) => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse(where, 'an object');
  const out = {};
  for (const [name, check] of Object.entries(members)) {
    if (value[name] !== undefined && value[name] !== null) out[name] = check(value[name], `${where}.${name}`);
    else if (required.includes(name)) throw new Error(`${where}.${name} is missing`);
  }
  return out;
};

const token = { token: text, logprob: number };
const message = object({
  role: oneOf('user', 'assistant', 'tool'), content: text, parent: number, reasoning: text, finish: text, cut: text, error: text, call_id: text,
  calls: list(object({ id: text, name: text, arguments: text }, 'name', 'arguments')),
  files: list(object({ name: text, size: number, text }, 'name', 'size', 'text')),
  logprobs: list(object({ ...token, top_logprobs: list(object(token, 'token', 'logprob')) }, 'token', 'logprob')),
  timing: object(Object.fromEntries(['rate', 'first_s', 'tokens', 'prompt', 'cached', 'chunks'].map((name) => [name, number]))),
}, 'role', 'content', 'parent');
const conversation = object({
  id: text, at: number, title: text, model: text, settings: object(Object.fromEntries(SETTINGS.map((name) => [name, scalar]))),
  messages: list(message), leaf: number,
}, 'messages');

// A stored or imported conversation; throws when it is broken.
export function clean(value, where) {
  const chat = { ...fresh(), ...conversation(value, where) }, { messages } = chat;
  if (messages.length > MAX_MESSAGES) refuse(`${where}.messages`, `a list of at most ${MAX_MESSAGES} messages`);
  messages.forEach((m, i) => { // a parent comes before its children, so there is no cycle
    if (!Number.isInteger(m.parent) || m.parent < -1 || m.parent >= i) refuse(`${where}.messages[${i}].parent`, `a whole number from -1 to ${i - 1}`);
  });
  if (!Number.isInteger(chat.leaf) || chat.leaf >= messages.length || (chat.leaf < 0 && messages.length > 0)) chat.leaf = messages.length - 1;
  chat.title = chat.title.slice(0, MAX_TITLE);
  return chat;
}

// The conversations of an exported file, with new names of their own; throws an error that says what is wrong and where.
export function fromJson(source) {
  let file;
  try { file = JSON.parse(source); } catch (error) { throw new Error(`not JSON (${error.message})`); }
  if (file?.format !== FORMAT) throw new Error(`not an export of conversations: "format" is not "${FORMAT}"`);
  if (file.version !== VERSION) throw new Error(`version ${JSON.stringify(file.version)} is not known, only ${VERSION}`);
  if (!Array.isArray(file.conversations)) refuse('conversations', 'a list');
  return file.conversations.map((value, i) => ({ ...clean(value, `conversations[${i}]`), id: newId() }));
}
