// The `ai` package with its provider for OpenAI-compatible servers.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { apiKey, assert, base, counting, finish, get, soon, sum, test, weather } from './harness.mjs';

const provider = createOpenAICompatible({ name: 'shoal', baseURL: `${base}/v1`, apiKey, includeUsage: true });
const settings = { model: provider('default'), temperature: 0, maxRetries: 0 };
const tools = {
  [weather.name]: tool({ description: weather.description, inputSchema: jsonSchema(weather.parameters), execute: async () => weather.result }),
};

await test('ai: text is generated', async () => {
  const { text, usage, finishReason } = await generateText({ ...settings, prompt: sum.question });
  assert.equal(text, sum.answer);
  assert.equal(finishReason, 'stop');
  assert.ok(usage.totalTokens > 10);
});

await test('ai: text is streamed', async () => {
  const result = streamText({ ...settings, prompt: counting.question });
  let text = '';
  for await (const part of result.textStream) text += part;
  assert.equal(text, counting.answer);
  assert.ok((await result.usage).outputTokens > 20);
});

await test('ai: a tool is called and its result used', async () => {
  const { text, steps } = await generateText({ ...settings, tools, stopWhen: stepCountIs(3), prompt: weather.question });
  assert.equal(text, weather.answer);
  assert.deepEqual(steps[0].toolCalls[0].input, { city: 'Oslo' });
});

await test('ai: a tool is called in a stream', async () => {
  const result = streamText({ ...settings, tools, stopWhen: stepCountIs(3), prompt: weather.question });
  assert.equal(await result.text, weather.answer);
});

await test('ai: an object of a zod schema is generated', async () => {
  const schema = z.object({ city: z.enum(['Oslo', 'Rome']), degrees: z.array(z.number().int()).max(3) });
  const shaped = createOpenAICompatible({ name: 'shoal', baseURL: `${base}/v1`, apiKey, supportsStructuredOutputs: true });
  const { object } = await generateObject({ ...settings, model: shaped('default'), schema, prompt: weather.question, maxOutputTokens: 300 });
  assert.ok(schema.safeParse(object).success);
});

await test('ai: an aborted stream is cancelled in the engine', async () => {
  const abort = new AbortController();
  const result = streamText({
    ...settings, prompt: 'Tell me a story about a fox and a lantern.', abortSignal: abort.signal, onError() {},
    providerOptions: { shoal: { ignore_eos: true } }, maxOutputTokens: 1500,
  });
  let seen = 0;
  try {
    for await (const _ of result.textStream) {
      seen += 1;
      if (seen === 3) abort.abort();
    }
  } catch { /* an abort may end the loop by an error */ }
  assert.ok(await soon(async () => (await get('/metrics/snapshot')).requests_running === 0), 'still running');
});

await test('ai: a wrong key and a wrong model are reported as such', async () => {
  if (apiKey !== 'none') {
    const stranger = createOpenAICompatible({ name: 'shoal', baseURL: `${base}/v1`, apiKey: 'sk-wrong' });
    await assert.rejects(generateText({ ...settings, model: stranger('default'), prompt: 'Hello!' }), (error) => error.statusCode === 401);
  }
  await assert.rejects(generateText({ ...settings, model: provider('gpt-4o'), prompt: 'Hello!' }), (error) => {
    assert.equal(error.statusCode, 404);
    assert.match(error.message, /gpt-4o/);
    return true;
  });
});

finish();
