// OpenAI's Responses API: by OpenAI's own package, and by that of the `ai` package, whose default it is.
import { createOpenAI } from '@ai-sdk/openai';
import { ChatOpenAI } from '@langchain/openai';
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { aborted, apiKey, assert, base, counting, finish, replayed, story, sum, test, weather } from './harness.mjs';

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
const settings = { model: 'default', temperature: 0 };
const tools = [{ type: 'function', name: weather.name, description: weather.description, parameters: weather.parameters, strict: false }];
const shape = z.object({ city: z.enum(['Oslo', 'Rome']), degrees: z.number().int() });

await test('responses: a text is answered', async () => {
  const response = await client.responses.create({ ...settings, input: sum.question });
  assert.equal(response.output_text, sum.answer);
  assert.equal(response.status, 'completed');
  assert.ok(response.usage.total_tokens > 10);
});

await test('responses: events come named, numbered and in order', async () => {
  const stream = client.responses.stream({ ...settings, input: counting.question });
  const types = [];
  let next = 0;
  for await (const event of stream) {
    assert.equal(event.sequence_number, next);
    next += 1;
    if (types.at(-1) !== event.type) types.push(event.type);
  }
  assert.deepEqual(types, ['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added',
    'response.output_text.delta', 'response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.completed']);
  assert.equal((await stream.finalResponse()).output[0].content[0].text, counting.answer);
});

await test('responses: a tool is called and its result used, by the previous response', async () => {
  const first = await client.responses.create({ ...settings, input: weather.question, tools });
  const call = first.output.find((item) => item.type === 'function_call');
  assert.deepEqual(JSON.parse(call.arguments), { city: 'Oslo' });
  const second = await client.responses.create({ ...settings, tools, previous_response_id: first.id,
    input: [{ type: 'function_call_output', call_id: call.call_id, output: weather.result }] });
  assert.equal(second.output_text, weather.answer);
  assert.equal(second.previous_response_id, first.id);
});

await test('responses: the items can be sent back instead', async () => {
  const input = [{ role: 'user', content: weather.question }];
  const first = await client.responses.create({ ...settings, input, tools, store: false });
  const call = first.output.find((item) => item.type === 'function_call');
  input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: weather.result });
  assert.equal((await client.responses.create({ ...settings, input, tools, store: false })).output_text, weather.answer);
  await assert.rejects(client.responses.retrieve(first.id), (error) => error.status === 404);
});

await test('responses: a stored one is retrieved, listed and deleted', async () => {
  const made = await client.responses.create({ ...settings, input: sum.question, metadata: { a: 'b' } });
  const found = await client.responses.retrieve(made.id);
  assert.deepEqual([found.output_text, found.metadata], [sum.answer, { a: 'b' }]);
  const items = [];
  for await (const item of client.responses.inputItems.list(made.id)) items.push(item.content[0].text);
  assert.deepEqual(items, [sum.question]);
  await client.responses.delete(made.id);
  await assert.rejects(client.responses.retrieve(made.id), (error) => error instanceof OpenAI.NotFoundError);
});

await test('responses: a zod schema is parsed', async () => {
  const parsed = await client.responses.parse({ ...settings, input: weather.question, text: { format: zodTextFormat(shape, 'report') } });
  assert.ok(shape.safeParse(parsed.output_parsed).success);
});

await test('responses: a limit leaves it incomplete', async () => {
  const response = await client.responses.create({ ...settings, input: counting.question, max_output_tokens: 5 });
  assert.deepEqual([response.status, response.incomplete_details.reason], ['incomplete', 'max_output_tokens']);
});

await test('responses: errors are those of OpenAI', async () => {
  await assert.rejects(client.responses.create({ ...settings, model: 'gpt-5', input: 'x' }), (error) => error instanceof OpenAI.NotFoundError && /gpt-5/.test(error.message));
  await assert.rejects(client.responses.create({ ...settings, input: 'x', tools: [{ type: 'web_search' }] }), (error) => error instanceof OpenAI.BadRequestError && /web_search/.test(error.message));
  await assert.rejects(client.responses.create({ ...settings, input: 'x', background: true }), /while its client waits/);
});

await test('responses: an aborted stream is cancelled in the engine', async () => {
  const abort = new AbortController();
  const stream = await client.responses.create({ ...settings, input: story, stream: true, ignore_eos: true, max_output_tokens: 1500 }, { signal: abort.signal });
  await aborted(stream, () => abort.abort());
});

await replayed('responses: a stream goes on with the same text after a rank was killed', async function* texts() {
  const stream = await client.responses.create({ ...settings, input: story, stream: true, seed: 3, temperature: 1, ignore_eos: true, max_output_tokens: 300 });
  for await (const event of stream) if (event.type === 'response.output_text.delta') yield event.delta;
});

const model = createOpenAI({ baseURL: `${base}/v1`, apiKey })('default');
const ai = { model, temperature: 0, maxRetries: 0 };
const aiTools = { [weather.name]: tool({ description: weather.description, inputSchema: jsonSchema(weather.parameters), execute: async () => weather.result }) };

await test('@ai-sdk/openai: text is generated and streamed', async () => {
  const { text, finishReason, usage } = await generateText({ ...ai, prompt: sum.question });
  assert.deepEqual([text, finishReason], [sum.answer, 'stop']);
  assert.ok(usage.totalTokens > 10);
  assert.equal(await streamText({ ...ai, prompt: counting.question }).text, counting.answer);
});

await test('@ai-sdk/openai: a tool is called and its result used, also in a stream', async () => {
  const turns = { ...ai, tools: aiTools, stopWhen: stepCountIs(3), prompt: weather.question };
  const { text, steps } = await generateText(turns);
  assert.equal(text, weather.answer);
  assert.deepEqual(steps[0].toolCalls[0].input, { city: 'Oslo' });
  assert.equal(await streamText(turns).text, weather.answer);
});

await test('@ai-sdk/openai: an object of a zod schema is generated', async () => {
  const { object } = await generateObject({ ...ai, schema: shape, prompt: weather.question });
  assert.ok(shape.safeParse(object).success);
});

await test('@ai-sdk/openai: an error is reported as such', async () => {
  const other = createOpenAI({ baseURL: `${base}/v1`, apiKey })('gpt-5');
  await assert.rejects(generateText({ ...ai, model: other, prompt: 'x' }), (error) => error.statusCode === 404 && /gpt-5/.test(error.message));
});

await test('langchain: the Responses API', async () => {
  const chain = new ChatOpenAI({ ...settings, maxRetries: 0, apiKey, useResponsesApi: true, configuration: { baseURL: `${base}/v1` } });
  assert.equal((await chain.invoke(sum.question)).text, sum.answer);
  let text = '';
  for await (const chunk of await chain.stream(counting.question)) text += chunk.text;
  assert.equal(text, counting.answer);
  const shaped = chain.withStructuredOutput(shape, { name: 'report', method: 'jsonSchema' });
  assert.ok(shape.safeParse(await shaped.invoke(weather.question)).success);
});

finish();
