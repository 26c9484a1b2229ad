// The API documentation page, rendered from openapi.json. Text from the server is only ever set as text.

const examples = {
  '/v1/chat/completions': { messages: [{ role: 'user', content: 'Who are you?' }], stream: true },
  '/chat/completions': { messages: [{ role: 'user', content: 'Who are you?' }] },
  '/v1/completions': { prompt: 'The sea is', max_tokens: 32 },
  '/tokenize': { content: 'Hello, world', with_pieces: true },
  '/detokenize': { tokens: [1, 2, 3] },
  '/apply-template': { messages: [{ role: 'user', content: 'Who are you?' }] },
};

const key = document.getElementById('key');
key.value = sessionStorage.getItem('key') ?? '';
key.addEventListener('change', () => sessionStorage.setItem('key', key.value));

function el(name, props = {}, ...children) {
  const node = Object.assign(document.createElement(name), props);
  node.append(...children.filter((child) => child != null));
  return node;
}

// Text in which `...` marks code.
function prose(name, className, text) {
  return el(name, { className }, ...text.split('`').map((part, i) => (i % 2 ? el('code', { textContent: part }) : part)));
}

function headers(body) {
  const out = {};
  if (body !== undefined) out['Content-Type'] = 'application/json';
  if (key.value !== '') out.Authorization = `Bearer ${key.value}`;
  return out;
}

let schemas = {}; // that the document gives names to

function named(schema) {
  return schema.$ref ? schemas[schema.$ref.split('/').pop()] : schema;
}

// Every field that is not required may also be null, which goes without saying.
function typeText(schema) {
  const one = named(schema.allOf?.[0] ?? schema);
  if (one.properties) return 'object';
  if (one.anyOf) return [...new Set(one.anyOf.map(typeText))].filter((type) => type !== 'null').join(' or ');
  if (one.const !== undefined) return one.const;
  if (one.enum && schema.deprecated === undefined) return one.enum.filter((value) => value !== null).join(' | ');
  const type = [one.type ?? 'any'].flat().filter((name, i, all) => name !== 'null' || all.length === 1).join(' or ');
  const bounds = one.minimum !== undefined ? ` ${one.minimum} … ${one.maximum}` : '';
  return type + bounds;
}

function fieldRows(schema, prefix = '') {
  const fields = Object.entries(schema.properties).sort(([, a], [, b]) => Boolean(a.deprecated) - Boolean(b.deprecated));
  return fields.flatMap(([name, field]) => {
    if (field.properties) return fieldRows(field, `${prefix}${name}.`);
    const required = schema.required?.includes(name);
    const row = el('tr', { className: field.deprecated ? 'refused' : '' },
      el('td', {}, el('code', { textContent: prefix + name }), required ? el('div', { className: 'must', textContent: 'required' }) : null),
      el('td', { textContent: typeText(field) }),
      el('td', { textContent: field.default === undefined ? '' : JSON.stringify(field.default) }),
      prose('td', '', field.description ?? ''));
    return [row];
  });
}

function fieldTable(operation) {
  const schema = operation.requestBody?.content['application/json'].schema;
  if (!schema) return null;
  const head = el('tr', {}, ...['Field', 'Type', 'Default', 'Meaning'].map((text) => el('th', { textContent: text, scope: 'col' })));
  const table = el('table', {}, el('thead', {}, head), el('tbody', {}, ...fieldRows(schema)));
  return el('details', {}, el('summary', { textContent: 'Fields of the body' }), el('div', { className: 'scroll' }, table));
}

// Shows a response while it arrives; JSON is formatted at the end.
async function show(response, output) {
  const type = response.headers.get('Content-Type') ?? '';
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
    output.textContent = text.length > 200000 ? text.slice(-200000) : text;
    output.scrollTop = output.scrollHeight;
  }
  if (type.includes('json')) {
    try { output.textContent = JSON.stringify(JSON.parse(text), null, 2); } catch { /* leave it as it is */ }
  }
}

function tryIt(path, method, operation) {
  const parameter = operation.parameters?.[0];
  const given = parameter ? el('input', { placeholder: parameter.name, ariaLabel: parameter.name }) : null;
  const body = operation.requestBody
    ? el('textarea', { value: JSON.stringify(examples[path] ?? {}, null, 2), spellcheck: false, ariaLabel: 'Body' }) : null;
  const send = el('button', { className: 'send', type: 'button', textContent: 'Send' });
  const stop = el('button', { type: 'button', textContent: 'Stop', disabled: true });
  const outcome = el('span', { className: 'outcome', role: 'status' });
  const output = el('pre', { tabIndex: 0 });
  let abort = null;

  function url() {
    if (!parameter || given.value === '') return path.replace(/\{.*\}/, '');
    if (parameter.in === 'query') return `${path}?${parameter.name}=${encodeURIComponent(given.value)}`;
    return path.replace(/\{.*\}/, encodeURIComponent(given.value));
  }

  async function run() {
    const start = performance.now();
    abort = new AbortController();
    send.disabled = true; stop.disabled = false;
    output.textContent = ''; outcome.textContent = 'sending…';
    try {
      const response = await fetch(url(), { method, headers: headers(body?.value), body: body?.value, signal: abort.signal });
      outcome.textContent = `${response.status} ${response.statusText}`;
      await show(response, output);
      outcome.textContent = `${response.status} ${response.statusText} in ${Math.round(performance.now() - start)} ms`;
    } catch (error) {
      outcome.textContent = error.name === 'AbortError' ? 'stopped' : String(error.message ?? error);
    }
    send.disabled = false; stop.disabled = true;
  }
  send.addEventListener('click', run);
  stop.addEventListener('click', () => abort?.abort());
  return el('details', {}, el('summary', { textContent: 'Try it' }),
    el('div', { className: 'try' }, body, el('div', { className: 'row' }, given, send, stop, outcome), output));
}

function endpoint(path, method, operation) {
  return el('section', { id: operation.operationId },
    el('h3', {}, el('span', { className: `method ${method}`, textContent: method.toUpperCase() }), el('span', { className: 'path', textContent: path })),
    prose('p', 'summary', `${operation.summary}.`),
    fieldTable(operation), tryIt(path, method.toUpperCase(), operation));
}

function page(doc) {
  const operations = Object.entries(doc.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ path, method, operation })));
  const nav = document.getElementById('nav');
  const main = document.getElementById('main');
  document.getElementById('version').textContent = doc.info.version;
  document.getElementById('lead').textContent = doc.info.description;
  for (const { name } of doc.tags) {
    const own = operations.filter(({ operation }) => operation.tags.includes(name));
    nav.append(el('h2', { textContent: name }),
      ...own.map(({ path, operation }) => el('a', { href: `#${operation.operationId}`, textContent: path })));
    main.append(...own.map(({ path, method, operation }) => endpoint(path, method, operation)));
  }
  main.querySelector('section details:last-child').open = true;
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

async function health() {
  const chip = document.getElementById('state');
  try {
    const state = await (await fetch('/health')).json();
    chip.textContent = state.ok ? `serving ${state.model}` : state.status;
    chip.title = state.detail ?? '';
    chip.className = `chip ${state.ok ? 'good' : 'bad'}`;
  } catch {
    chip.textContent = 'not reachable';
    chip.className = 'chip bad';
  }
}

health();
setInterval(health, 5000);
try {
  const api = await (await fetch('/openapi.json')).json();
  schemas = api.components.schemas;
  page(api);
} catch (error) {
  document.getElementById('lead').textContent = `openapi.json could not be read: ${error.message ?? error}`;
}
