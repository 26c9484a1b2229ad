// One answer of the model: the request, and the chunks of its stream, which are added to the message.
import { ApiError, ask, events } from './feed.js';

function count(message, chunk, started) {
  const t = message.timing, passed = (performance.now() - started) / 1000;
  t.first_s ??= passed;
  t.chunks = (t.chunks ?? 0) + 1;
  if (passed - t.first_s > 0.2) t.rate = t.chunks / (passed - t.first_s);
}

function addCalls(message, calls) {
  for (const call of calls) {
    const index = Number.isInteger(call.index) && call.index >= 0 && call.index < 128 ? call.index : 0;
    message.calls ??= [];
    while (message.calls.length <= index) message.calls.push({ id: '', name: '', arguments: '' });
    const mine = message.calls[index];
    mine.id = call.id ?? mine.id;
    mine.name += call.function?.name ?? '';
    mine.arguments += call.function?.arguments ?? '';
  }
}

const likelihood = (t) => ({ token: String(t.token), logprob: Number(t.logprob) });

// Adds one chunk of the stream to the message.
function take(message, chunk, started) {
  if (chunk.error) throw new ApiError(0, String(chunk.error.message ?? 'the answer failed'));
  const choice = chunk.choices?.[0], delta = choice?.delta ?? {};
  if (delta.content || delta.reasoning_content || delta.tool_calls) count(message, chunk, started);
  message.content += delta.content ?? '';
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
  addCalls(message, delta.tool_calls ?? []);
  for (const t of choice?.logprobs?.content ?? [])
    (message.logprobs ??= []).push({ ...likelihood(t), top_logprobs: (t.top_logprobs ?? []).map(likelihood) });
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.usage) {
    const { completion_tokens: tokens, prompt_tokens: prompt, prompt_tokens_details: details } = chunk.usage;
    Object.assign(message.timing, { tokens, prompt, cached: details?.cached_tokens });
    if (chunk.performance?.eval_tokens_per_second > 0) message.timing.rate = chunk.performance.eval_tokens_per_second;
  }
}

async function follow(message, body, signal, grown) {
  const started = performance.now();
  for await (const data of events(await ask('/v1/chat/completions', { body, signal }))) {
    if (data === '[DONE]') return;
    take(message, JSON.parse(data), started);
    grown();
  }
  message.cut = 'the server closed the connection';
}

// Streams the answer into the message and calls grown() after each chunk. How it ended is in message.cut or
// message.error. Returns the status of a request that was refused, else 0.
export async function streamAnswer(message, body, signal, grown) {
  let status = 0;
  try {
    await follow(message, body, signal, grown);
  } catch (error) {
    if (signal.aborted) message.cut = 'stopped';
    else if (error instanceof ApiError) message.error = error.message;
    else message.cut = `the connection broke (${error.message})`;
    status = error.status ?? 0;
  }
  delete message.streaming;
  message.timing.tokens ??= message.timing.chunks;
  return status;
}

// Calls draw() at most once in a frame of the screen, and after a slow draw only when three times its duration has
// passed, so that typing and scrolling stay smooth however long the answer is.
export class Painter {
  constructor(draw) {
    this.draw = draw;
    this.next = 0;
    this.asked = false;
  }

  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => this.frame());
  }

  frame() {
    const start = performance.now();
    if (start < this.next) { requestAnimationFrame(() => this.frame()); return; }
    this.asked = false;
    this.draw();
    this.next = performance.now() + 3 * (performance.now() - start);
  }
}
