// Shared by the client tests: TAP output, the address of the server, and questions for the demo model.
import assert from 'node:assert/strict';

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

export function finish() {
  console.log(`1..${count}`);
  process.exit(failures === 0 ? 0 : 1);
}

export async function get(path) {
  const response = await fetch(base + path, { headers: { Authorization: `Bearer ${apiKey}` } });
  assert.equal(response.status, 200, path);
  return response.json();
}

// Polls until the condition holds, for 5 s at most.
export async function soon(condition) {
  for (let i = 0; i < 100; i += 1) {
    if (await condition()) return true;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  return false;
}

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
