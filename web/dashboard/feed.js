// The connection to the API: the stream of snapshots, which reconnects after restarts, and single requests, all with
// the API key of this tab.

const KEY = 'key'; // shared with /docs
const STALE_MS = 4000; // the stream sends a snapshot every second
const RETRY_MS = [250, 500, 1000, 2000];

export function apiKey() {
  return sessionStorage.getItem(KEY) ?? '';
}

export function setApiKey(key) {
  if (key === '') sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, key);
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Sends a request to the API; a response that is not 2xx becomes an ApiError with the server's message.
export async function ask(path, { body, signal, method = body === undefined ? 'GET' : 'POST' } = {}) {
  const headers = {};
  if (apiKey() !== '') headers.Authorization = `Bearer ${apiKey()}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const response = await fetch(path, {
    method, headers, signal, cache: 'no-store',
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    const json = await response.json();
    message = json?.error?.message ?? json?.detail ?? message;
  } catch { /* the status has to be enough */ }
  throw new ApiError(response.status, String(message));
}

export async function askJson(path) {
  return (await ask(path)).json();
}

// The `data` of each server-sent event in a response.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith('data:'))
          .map((line) => line.slice(5).replace(/^ /, ''));
        if (data.length > 0) yield data.join('\n');
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The objects of a response that is a line of JSON for each.
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    const parts = (rest + (value ?? '')).split('\n');
    rest = done ? '' : parts.pop();
    for (const part of parts) if (part.trim() !== '') yield JSON.parse(part);
    if (done) return;
  }
}

// Calls on.snapshot(object), and on.line(state, why) with 'live', 'lost' or 'key'. Runs as long as the page is open.
export class Feed {
  constructor(on) {
    this.on = on;
    this.failures = 0;
    this.wake = null;
    this.run();
  }

  async run() {
    for (;;) {
      try {
        await this.follow();
        this.on.line('lost', 'the stream ended');
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) this.on.line('key', error.message);
        else this.on.line('lost', error.name === 'AbortError' ? 'no update from the API' : error.message);
      }
      const pause = RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)];
      await new Promise((resolve) => { this.wake = resolve; setTimeout(resolve, pause); });
    }
  }

  async follow() {
    const abort = new AbortController();
    this.abort = abort;
    let guard = setTimeout(() => abort.abort(), STALE_MS);
    try {
      for await (const data of events(await ask('/metrics/stream', { signal: abort.signal }))) {
        clearTimeout(guard);
        guard = setTimeout(() => abort.abort(), STALE_MS);
        this.failures = 0;
        this.on.line('live', '');
        this.on.snapshot(JSON.parse(data));
      }
    } finally {
      clearTimeout(guard);
    }
  }

  // Reconnects at once, for example with a new key.
  retry() {
    this.failures = 0;
    this.abort?.abort();
    this.wake?.();
  }
}
