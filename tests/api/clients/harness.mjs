// Shared by the client tests: TAP output, the address of the server, and questions for the demo model.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';

export { assert };
export const base = (process.env.SHOAL_TEST_URL ?? 'http://127.0.0.1:8100').replace(/\/$/, '');
export const apiKey = process.env.SHOAL_TEST_KEY || 'none';

let count = 0;
let failures = 0;

export async function test(claim, run) {
  count += 1;
  let timer;
  const limit = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('over 120 s')), 120000); });
  try {
    await Promise.race([run(), limit]);
    console.log(`ok ${count} - ${claim}`);
  } catch (error) {
    failures += 1;
    console.log(`not ok ${count} - ${claim}`);
    console.log(String(error?.stack ?? error).split('\n').slice(0, 12).map((line) => `# ${line}`).join('\n'));
  }
  clearTimeout(timer);
}

export function skip(claim, why) {
  count += 1;
  console.log(`ok ${count} - ${claim} # SKIP ${why}`);
}

export function finish() {
  console.log(`1..${count}`);
  process.exit(failures === 0 ? 0 : 1);
}

export async function get(path) {
  const response = await fetch(base + path, { headers: { Authorization: `Bearer ${apiKey}` } });
  assert.equal(response.status, 200, path);
  return response.json();
}

// Polls until the condition holds, for 20 s at most.
export async function soon(condition) {
  for (let i = 0; i < 400; i += 1) {
    if (await condition()) return true;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  return false;
}

// Kills rank 1 of the server that this test has started.
function killRank() {
  for (const pid of readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) {
    try {
      const parent = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\)/s, '').split(' ')[2];
      const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
      if (parent === process.env.SHOAL_TEST_SERVE && variables.includes('SHOAL_RANK=1')) return process.kill(Number(pid), 'SIGKILL');
    } catch { /* it has ended meanwhile */ }
  }
  throw new Error('there is no rank 1');
}

// stream(): the parts of an answer, by an async iterator of texts. The answer is the same after a rank was killed.
export async function replayed(claim, stream) {
  if (!process.env.SHOAL_TEST_SERVE) return skip(claim, 'the server was not started by this test');
  return test(claim, async () => {
    let whole = '';
    for await (const text of stream()) whole += text;
    assert.ok(whole.length > 200, whole);
    let again = '';
    let parts = 0;
    for await (const text of stream()) {
      again += text;
      parts += 1;
      if (parts === 20) killRank();
    }
    assert.equal(again, whole);
    assert.ok(parts > 20);
  });
}

// Reads three parts of an endless answer; then abort() has to end it in the engine.
export async function aborted(parts, abort) {
  let seen = 0;
  try {
    for await (const _ of parts) {
      seen += 1;
      if (seen === 3) abort();
    }
  } catch { /* an abort may end the loop by an error */ }
  assert.ok(seen >= 3);
  assert.ok(await soon(async () => (await get('/metrics/snapshot')).requests_running === 0), 'still running');
}

export const story = 'Tell me a story about a fox and a lantern.';

// Questions to which the demo model always gives the same answer.
export const sum = { question: 'What is 37 + 48?', answer: '37 + 48 = 85' };
export const counting = { question: 'Count to 20.', answer: Array.from({ length: 20 }, (_, i) => i + 1).join(', ') + '.' };
export const weather = {
  question: 'What is the weather in Oslo?',
  name: 'get_weather',
  description: 'Get the current weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  result: '{"temperature": 7, "condition": "sunny"}', // spaced as in the model's training data
  answer: 'It is sunny in Oslo, at 7 degrees.',
};
