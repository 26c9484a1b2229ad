// LangChain with its OpenAI package.
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAI } from '@langchain/openai';
import { initChatModel } from 'langchain/chat_models/universal';
import { z } from 'zod';
import { apiKey, assert, base, counting, finish, get, soon, sum, test, weather } from './harness.mjs';

const settings = { model: 'default', temperature: 0, maxRetries: 0, apiKey, configuration: { baseURL: `${base}/v1` } };
const model = new ChatOpenAI(settings);
const schema = { type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.parameters } };

await test('langchain: a chat is answered', async () => {
  const answer = await model.invoke(sum.question);
  assert.equal(answer.content, sum.answer);
  assert.ok(answer.usage_metadata.total_tokens > 10);
});

await test('langchain: a chat is streamed', async () => {
  let text = '';
  for await (const chunk of await model.stream(counting.question)) text += chunk.content;
  assert.equal(text, counting.answer);
});

await test('langchain: a batch is answered', async () => {
  const answers = await model.batch(['What is 1 + 2?', 'What is 10 + 20?']);
  assert.deepEqual(answers.map((answer) => answer.content), ['1 + 2 = 3', '10 + 20 = 30']);
});

await test('langchain: a tool is called and its result used', async () => {
  const bound = model.bindTools([schema]);
  const messages = [new HumanMessage(weather.question)];
  const call = await bound.invoke(messages);
  assert.deepEqual(call.tool_calls[0].args, { city: 'Oslo' });
  messages.push(call, new ToolMessage({ content: weather.result, tool_call_id: call.tool_calls[0].id }));
  assert.equal((await bound.invoke(messages)).content, weather.answer);
});

await test('langchain: a tool call is streamed', async () => {
  let whole;
  for await (const chunk of await model.bindTools([schema]).stream(weather.question)) whole = whole === undefined ? chunk : whole.concat(chunk);
  assert.deepEqual(whole.tool_calls[0].args, { city: 'Oslo' });
});

await test('langchain: structured output, by schema and by call', async () => {
  const shape = z.object({ city: z.enum(['Oslo', 'Rome']), degrees: z.number().int() });
  for (const method of ['jsonSchema', 'functionCalling']) {
    const shaped = model.withStructuredOutput(shape, { name: 'report', method });
    assert.ok(shape.safeParse(await shaped.invoke(weather.question)).success, method);
  }
});

await test('langchain: a model created by initChatModel answers', async () => {
  const made = await initChatModel('default', { ...settings, modelProvider: 'openai' });
  assert.equal((await made.invoke(sum.question)).content, sum.answer);
});

await test('langchain: completions continue a text', async () => {
  const text = await new OpenAI({ ...settings, maxTokens: 6 }).invoke('The capital of Norway is');
  assert.ok(text.length > 0);
});

await test('langchain: an aborted stream is cancelled in the engine', async () => {
  const abort = new AbortController();
  const long = new ChatOpenAI({ ...settings, maxTokens: 1500, modelKwargs: { ignore_eos: true } });
  let seen = 0;
  try {
    for await (const _ of await long.stream('Tell me a story about a fox and a lantern.', { signal: abort.signal })) {
      seen += 1;
      if (seen === 3) abort.abort();
    }
  } catch { /* an abort may end the loop by an error */ }
  assert.ok(await soon(async () => (await get('/metrics/snapshot')).requests_running === 0), 'still running');
});

await test('langchain: a wrong key and a wrong model are reported as such', async () => {
  if (apiKey !== 'none') await assert.rejects(new ChatOpenAI({ ...settings, apiKey: 'sk-wrong' }).invoke('Hello!'), /401|key/);
  await assert.rejects(new ChatOpenAI({ ...settings, model: 'gpt-4o' }).invoke('Hello!'), /gpt-4o/);
});

finish();
