// The model, the settings in effect and how to call the server.
import { h, button, copyButton, facts } from './dom.js';
import { bytes, count, duration, fixed } from './format.js';
import { askJson } from './feed.js';

const MARK = 'YOUR_API_KEY';

function snippets(origin, model) {
  return {
    curl: `curl ${origin}/v1/chat/completions \\
  -H "Authorization: Bearer ${MARK}" \\
  -H "Content-Type: application/json" \\
  -d '{
    "model": ${JSON.stringify(model)},
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": true
  }'`,
    Python: `from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key="${MARK}")

stream = client.chat.completions.create(
    model=${JSON.stringify(model)},
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    JavaScript: `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: '${origin}/v1', apiKey: '${MARK}' });

const stream = await client.chat.completions.create({
  model: ${JSON.stringify(model)},
  messages: [{ role: 'user', content: 'Hello' }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}`,
  };
}

class Snippets {
  constructor() {
    this.code = h('code');
    this.choices = ['curl', 'Python', 'JavaScript'].map((name) =>
      button(name, () => { this.name = name; this.draw(); }, { class: 'small', 'data-name': name }));
    this.name = 'curl';
    this.model = 'default';
    this.el = h('section', { class: 'card', id: 'snippets', 'aria-labelledby': 'snippets-title' },
      h('header', null, h('h2', { id: 'snippets-title' }, 'Call it'),
        h('div', { class: 'segments', role: 'group', 'aria-label': 'Language' }, this.choices)),
      h('div', { class: 'code' }, h('pre', { tabindex: 0, 'aria-label': 'Example' }, this.code),
        copyButton(() => this.code.textContent)),
      h('p', { class: 'soft' }, 'Any key works if the server requires none. ', h('a', { href: '/docs' }, 'All endpoints'),
        ' · ', h('a', { href: '/metrics' }, 'Prometheus'), ' · ', h('a', { href: '/openapi.json' }, 'OpenAPI')));
    this.draw();
  }

  draw() {
    this.code.textContent = snippets(location.origin, this.model)[this.name];
    for (const choice of this.choices) choice.setAttribute('aria-pressed', String(choice.dataset.name === this.name));
  }
}

const plain = (v) => (v === null || v === '' ? 'none' : typeof v === 'boolean' ? (v ? 'yes' : 'no') : String(v));
const limit = (write) => (v) => (v === null ? 'unknown' : v > 0 ? write(v) : 'no limit');
const context = (v) => (v > 0 ? tokens(v) : 'up to the context');
const tokens = (v) => `${count(v)} tokens`;
const s = (v) => `${v} s`;

const parameters = (w) => (w.active_parameters < w.parameters ? `${count(w.parameters)}, ${count(w.active_parameters)} for a token` : count(w.parameters));

// What a request gets that leaves it open; neutral values are not worth a word.
function sampling(d) {
  if (!d) return undefined;
  const words = [`temperature ${d.temperature}`];
  if (d.top_p < 1) words.push(`top p ${d.top_p}`);
  if (d.top_k > 0) words.push(`top k ${d.top_k}`);
  if (d.min_p > 0) words.push(`min p ${d.min_p}`);
  if (d.repetition_penalty !== 1) words.push(`repetition penalty ${d.repetition_penalty}`);
  return words.join(', ');
}

// Labels for the settings of the API.
const SETTINGS = {
  defaults: ['Sampling', (v) => sampling(v) ?? 'the model’s'],
  host: ['Address'], port: ['Port'], tls: ['TLS'], api_keys: ['API keys', (v) => (v > 0 ? count(v) : 'none')], cors: ['CORS'],
  allowed_hosts: ['Allowed host names'],
  access_log: ['Access log'], request_log: ['Request log'], log_prompts: ['Prompts in the log'],
  max_tokens: ['Default max_tokens', context], max_tokens_hard: ['Largest max_tokens', context],
  timeout_s: ['Time limit of a request', limit(s)], grace_s: ['Grace period when stopping', s],
  connections_max: ['Connections', count], peer_connections_max: ['Connections per address', (v) => (v > 0 ? count(v) : 'automatic')],
  bodies_bytes_max: ['All bodies together', bytes], header_bytes_max: ['Largest header', bytes], body_bytes_max: ['Largest body', bytes],
  idle_s: ['Idle connections close after', s], receive_s: ['Time to receive a request', s], send_s: ['Time to send', s],
};

export class About {
  constructor() {
    this.model = h('div', null, h('p', { class: 'empty' }, 'The model is not known yet.'));
    this.settings = h('div', null, h('p', { class: 'empty' }, 'Not known yet.'));
    this.snippets = new Snippets();
    this.el = h('div', { class: 'about-grid' },
      h('section', { class: 'card', id: 'model-card', 'aria-labelledby': 'model-title' },
        h('header', null, h('h2', { id: 'model-title' }, 'Model')), this.model),
      h('section', { class: 'card', id: 'settings', 'aria-labelledby': 'settings-title' },
        h('header', null, h('h2', { id: 'settings-title' }, 'Active settings')), this.settings),
      this.snippets.el);
  }

  async load(engine) {
    const [info, health] = await Promise.all([askJson('/model/info'), askJson('/health')]);
    const settings = await askJson('/settings').catch(() => ({}));
    const loaded = (info.models ?? []).filter((m) => m.loaded), one = info.models?.find((m) => m.id === this.chosen);
    this.engine = engine;
    this.drawModel({ ...(one ?? (info.loaded ? info : loaded[0] ?? info)), memory: info.memory }, health);
    this.drawSettings(settings);
    this.snippets.model = info.id ?? 'default';
    this.snippets.draw();
    return info;
  }

  drawModel(info, health) {
    const e = (info.loaded && this.engine) || {}, w = info.weights ?? {}, weights = (e.ranks ?? []).reduce((sum, r) => sum + (r.memory?.weights ?? 0), 0);
    this.model.replaceChildren(h('p', { class: 'model-name' }, info.id ?? 'unnamed'), facts([
      ['Family', info.model_type], ['Folder', h('code', null, info.model_dir ?? '')],
      ['Tasks', info.tasks?.join(', ')], ['Context', info.max_context_length > 0 ? `${count(info.max_context_length)} tokens` : 'known once it is loaded'],
      ['Parameters', w.parameters > 0 ? parameters(w) : undefined], ['Quantization', w.quantization],
      ['Size on disk', w.bytes > 0 ? `${bytes(w.bytes)}, ${w.format}` : undefined],
      ['Weights in memory', weights > 0 ? bytes(weights) : undefined],
      ['Draft model', e.draft_model ? `${e.draft_model.name}, ${bytes(e.draft_model.weights)} and ${bytes(e.draft_model.kv)} of KV` : undefined],
      ['KV cache', e.kv ? `${count(e.kv.blocks * e.kv.block_tokens)} tokens, in ${count(e.kv.blocks)} blocks` : undefined],
      ['KV per token', w.kv_token_bytes > 0 ? bytes(w.kv_token_bytes) : undefined],
      ['Tool calls', info.tool_parser], ['Reasoning', info.reasoning_parser], ['Sampling', sampling(info.defaults)],
      ['Ranks', e.world_size], ['Stages', e.stages], ['Backend', info.backend],
      ['Layers', e.ranks?.length > 0 ? Math.max(...e.ranks.map((r) => r.layers?.[1] ?? 0)) : undefined],
      ['Shoal', health.version], ['API uptime', duration(health.uptime_s)],
      ['Machine memory', info.memory ? `${fixed(info.memory.limit_gb)} GiB, ${fixed(info.memory.headroom_gb)} free` : undefined],
    ]), ...(info.chat_template ? [this.template(info.id)] : []));
  }

  // Fetched when it is opened: some are long. Kept while the card is drawn anew, so that it stays open.
  template(model) {
    if (this.shown?.dataset.model === model) return this.shown;
    const code = h('code'), details = h('details', { id: 'template', 'data-model': model }, h('summary', null, 'Chat template'),
      h('div', { class: 'code' }, h('pre', { tabindex: 0, 'aria-label': 'Chat template' }, code), copyButton(() => code.textContent)));
    details.addEventListener('toggle', async () => {
      if (!details.open || code.textContent !== '') return;
      try { code.textContent = (await askJson(`/model/template?model=${encodeURIComponent(model)}`)).template; } catch (error) { code.textContent = error.message; }
    });
    this.shown = details;
    return details;
  }

  drawSettings(settings) {
    const e = this.engine ?? {};
    const engine = [['Slots', e.slots], ['Queue', e.waiting_max], ['Context', e.context], ['Ranks', e.world_size],
      ['Stages', e.stages]].filter(([, v]) => v !== undefined).map(([n, v]) => [n, count(v)]);
    const api = Object.entries(settings).map(([name, value]) => {
      const [label, write = plain] = SETTINGS[name] ?? [name];
      return [label, write(value)];
    });
    this.settings.replaceChildren(...[['Engine', engine], ['API', api]].filter(([, rows]) => rows.length > 0)
      .flatMap(([title, rows]) => [h('h4', null, title), facts(rows)]));
  }
}
