// An API that is made up: serves the files of the dashboard and answers with whatever scene is set, so that groups and
// states can be shown which one machine does not have.
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const web = path.join(__dirname, '..', '..', 'web', 'dashboard');
const TYPES = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', html: 'text/html' };
const FIELDS = ['generated_tokens_per_s', 'prompt_tokens_per_s', 'ttft_p50_s', 'ttft_p95_s', 'inter_token_p50_s',
  'inter_token_p95_s', 'running', 'waiting', 'tokens_per_step', 'cache_hit_rate', 'drafts_accepted', 'kv_used'];
const LONG_MODEL = `An-organisation/${'Large-Language-Model-'.repeat(4)}${'q'.repeat(20)}`; // 120 characters
const LONG_HOST = `studio-ultra-0.rack-12.${'long-domain-'.repeat(2)}example.org.l`; // 60
const HOSTS = [LONG_HOST, 'studio-1', 'studio-2'];
const now = () => Date.now() / 1000;

// Figures that move, around a rate that has four digits.
function figures(t, idleFrom) {
  const wave = 0.8 + 0.15 * Math.sin(t / 120) + 0.05 * Math.sin(t / 9);
  if (t > idleFrom) return [0, 0, null, null, null, null, 0, 0, 0, null, null, 0.1];
  return [2834, 911, 0.21, 0.62, 0.018, 0.041, 12, 5, 14, 0.6, 0.7, 0.4].map((x) => x * wave);
}

function rank(number) {
  return { rank: number, stage: 0, tensor_rank: number, layers: [0, 94], heads: 22, ffn: 4096, vocab: 50000, host: HOSTS[number],
    pid: 100 + number, memory: { weights: 4.5e10, kv: 1.2e10, available: 3e10, total: 1.2e11 }, cpu_s: now() * 1.5,
    compute_s: now() * 0.6, collective_s: now() * 0.2, tokens: 123456, collective_bytes: 1.5e9, temperature_c: null, power_w: null };
}

function link(a, b) {
  return { a, b, kind: 'rdma', latency_us: 4.2, bandwidth_gb_s: 9.1 + a + b, a_device: `rdma_en${2 + b}`, b_device: `rdma_en${2 + a}` };
}

const record = (i, status) => ({ request_id: `req_${i}`, timestamp: now() - 37 * i, kind: i % 3 ? 'chat' : 'completion',
  model_id: LONG_MODEL, prompt_tokens: 1234, cached_tokens: 1000, generated_tokens: 321, max_tokens_requested: 2048, wall_time_s: 4.5,
  queue_s: 0.01, time_to_first_token_s: 0.21, prefill_s: 0.2, decode_s: 4.1, tokens_per_second: 1234.5, status, http_status: 200,
  error_message: status === 'ok' ? null : `it was ${status}`, finish_reason: 'stop', is_stream: true });

class Scenes {
  constructor() {
    this.set({});
    this.asked = []; // queries for the history
    this.server = http.createServer((request, response) => this.answer(request, response));
  }

  // absent: numbers of ranks; loading: how far ranks are, as the API says it; gap: seconds ago when an outage of 5 min began.
  set({ absent = [], ready = true, loading = null, idleFor = 0, gap = 0, models = [LONG_MODEL] }) {
    const idleFrom = idleFor === 0 ? Infinity : now() - idleFor;
    this.scene = { absent, ready, loading, idleFrom, gapFrom: now() - gap, gap, models, since: now() - 125 };
  }

  async start() {
    await new Promise((resolve) => { this.server.listen(0, '127.0.0.1', resolve); });
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }

  history(model) {
    const { idleFrom, gap, gapFrom } = this.scene, points = [], scale = model === 'small' ? 0.1 : 1;
    for (let t = Math.floor(now() / 5) * 5 - 3595; t < now(); t += 5)
      if (!(gap > 0 && t > gapFrom && t < gapFrom + 300)) points.push([t, ...figures(t, idleFrom).map((x) => x && x * scale)]);
    return { model, interval_s: 5, fields: ['time', ...FIELDS], points };
  }

  model(name) {
    const scale = name === 'small' ? 0.1 : 1, values = figures(now(), this.scene.idleFrom);
    return { name, state: 'loaded', error: null, pinned: false, memory: 1.3e11, running: 8, used_at: now() - 3,
      now: this.scene.loading ? null : Object.fromEntries([['time', now()], ...FIELDS.map((f, i) => [f, values[i] && values[i] * scale])]) };
  }

  engine() {
    const { absent, ready } = this.scene, here = [0, 1, 2].filter((i) => !ready || !absent.includes(i));
    const links = here.flatMap((a) => here.filter((b) => b > a).map((b) => link(a, b)));
    return { uptime_s: now() - 1.7e9, reported_s: now() - 1.7e9, backend: 'jaccl', world_size: here.length, stages: 1, context: 32768,
      waiting: 3, waiting_max: 256, running: 8, slots: 16, counts: { requests: 100, prompt_tokens: 1e6, cached_tokens: 4e5 },
      kv: { blocks: 4096, free: 2100, block_tokens: 32 }, ready, lost: ready ? '' : 'rank 1: closed', lost_ranks: ready ? [] : absent, missing: ready ? absent : [],
      ranks: here.map(rank), links, imbalance: null, histograms: {} };
  }

  snapshot() {
    const { absent, ready, loading, models, since } = this.scene;
    return { uptime_s: 4000, time: now(), status: loading ? 'starting' : !ready ? 'engine_lost' : absent.length > 0 ? 'degraded' : 'healthy',
      detail: loading ? 'it is loading the model' : null, loading: loading ?? [], model: models[0], total_requests: 123, requests_held: 0, models: models.map((name) => this.model(name)),
      history: Array.from({ length: 40 }, (_, i) => ({ t: Math.floor(now() / 60) * 60 - 400 + 9 * i, tps: 40 + i, latency: 4.2, ctokens: 200, kind: 'chat' })),
      absent: absent.map((number) => ({ rank: number, host: HOSTS[number], since })), engine: loading ? null : this.engine() };
  }

  json(url) {
    const statuses = ['ok', 'cancelled', 'ok', 'error', 'refused', 'timeout'];
    switch (url.pathname) {
      case '/metrics/history':
        this.asked.push(url.searchParams.get('model'));
        return this.history(url.searchParams.get('model'));
      case '/requests/recent': return { ok: true, count: 12, requests: Array.from({ length: 12 }, (_, i) => record(i, statuses[i % 6])) };
      case '/requests/stats': return { total_requests: 123456, ok: 12, errors: 3, timeouts: 1, cancelled: 44, refused: 12,
        total_generated_tokens: 12345678, p50_tps: 1234.5, p50_ttft_s: 0.21, p95_latency_s: 12.2, kv_cache_hit_rate: 0.61 };
      case '/model/info': return { id: LONG_MODEL, model_type: 'qwen3', model_dir: `/models/${LONG_MODEL}`, max_context_length: 32768 };
      case '/health': return { version: '0.2', uptime_s: 4000 };
      case '/settings': return { host: '0.0.0.0', port: 8080, max_tokens: 0 };
      default: return null;
    }
  }

  answer(request, response) {
    const url = new URL(request.url, 'http://x'), json = this.json(url);
    if (url.pathname === '/metrics/stream') { this.stream(request, response); return; }
    if (json !== null) { response.setHeader('Content-Type', 'application/json').end(JSON.stringify(json)); return; }
    const name = url.pathname === '/dashboard' ? 'index.html' : path.basename(url.pathname);
    const file = path.join(web, name);
    if (!fs.existsSync(file)) { response.writeHead(404).end(); return; }
    response.setHeader('Content-Type', TYPES[name.split('.').pop()] ?? 'text/plain').end(fs.readFileSync(file));
  }

  stream(request, response) {
    response.setHeader('Content-Type', 'text/event-stream');
    const push = () => response.write(`data: ${JSON.stringify(this.snapshot())}\n\n`);
    push();
    const timer = setInterval(push, 300);
    request.on('close', () => clearInterval(timer));
  }
}

module.exports = { Scenes, LONG_MODEL, LONG_HOST };
