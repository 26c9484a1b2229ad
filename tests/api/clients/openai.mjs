// The `openai` package as a program would use it.
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { apiKey, assert, base, counting, finish, get, soon, sum, test, weather } from './harness.mjs';

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
const ask = (content, more = {}) => client.chat.completions.create({ model: 'default', temperature: 0, messages: [{ role: 'user', content }], ...more });
const tools = [{ type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.parameters } }];
const fails = (call, check) => assert.rejects(call, (error) => { check(error); return true; });

await test('openai: models are listed and found by name', async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  const { id } = list.data[0];
  assert.equal((await client.models.retrieve(id)).id, id);
  assert.equal((await client.models.retrieve('default')).id, id);
  await fails(client.models.retrieve('org/none'), (error) => assert.ok(error instanceof OpenAI.NotFoundError));
});

await test('openai: a chat is answered, with usage and a request id', async () => {
  const answer = await ask(sum.question);
  assert.equal(answer.choices[0].message.content, sum.answer);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.ok(answer._request_id.length > 0);
});

await test('openai: a stream says the same, with usage at its end', async () => {
  const stream = await ask(counting.question, { stream: true, stream_options: { include_usage: true } });
  let text = '';
  let chunks = 0;
  let last;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    chunks += 1;
    last = chunk;
  }
  assert.equal(text, counting.answer);
  assert.ok(chunks > 20);
  assert.ok(last.usage.completion_tokens > 20);
});

await test('openai: the stream helper assembles the message', async () => {
  const stream = client.chat.completions.stream({ model: 'default', temperature: 0, messages: [{ role: 'user', content: sum.question }] });
  assert.equal(await stream.finalContent(), sum.answer);
});

await test('openai: all messages count, not only the last', async () => {
  const answer = await client.chat.completions.create({
    model: 'default', temperature: 0,
    messages: [{ role: 'user', content: 'My name is Mia.' }, { role: 'assistant', content: 'Nice to meet you, Mia.' }, { role: 'user', content: 'What is my name?' }],
  });
  assert.match(answer.choices[0].message.content, /Mia/);
});

await test('openai: content parts are joined', async () => {
  const parts = [{ type: 'text', text: 'What is 37' }, { type: 'text', text: ' + 48?' }];
  assert.equal((await ask(parts)).choices[0].message.content, sum.answer);
});

await test('openai: a tool is called and its result used', async () => {
  const messages = [{ role: 'user', content: weather.question }];
  const first = await client.chat.completions.create({ model: 'default', temperature: 0, messages, tools });
  assert.equal(first.choices[0].finish_reason, 'tool_calls');
  const [call] = first.choices[0].message.tool_calls;
  assert.equal(call.function.name, weather.name);
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Oslo' });
  messages.push(first.choices[0].message, { role: 'tool', tool_call_id: call.id, content: weather.result });
  const second = await client.chat.completions.create({ model: 'default', temperature: 0, messages, tools });
  assert.equal(second.choices[0].message.content, weather.answer);
});

await test('openai: tool calls are streamed in deltas', async () => {
  const stream = await ask(weather.question, { tools, stream: true });
  const calls = [];
  let finish;
  for await (const { choices: [choice] } of stream) {
    for (const delta of choice.delta.tool_calls ?? []) {
      calls[delta.index] ??= { name: '', args: '' };
      calls[delta.index].name += delta.function.name ?? '';
      calls[delta.index].args += delta.function.arguments ?? '';
    }
    finish = choice.finish_reason ?? finish;
  }
  assert.equal(calls.length, 1);
  assert.equal(calls[0].name, weather.name);
  assert.deepEqual(JSON.parse(calls[0].args), { city: 'Oslo' });
  assert.equal(finish, 'tool_calls');
});

await test('openai: the helper runs the tool by itself', async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model: 'default', temperature: 0, messages: [{ role: 'user', content: weather.question }],
    tools: [{ type: 'function', function: { ...tools[0].function, parse: JSON.parse, function: (args) => { asked.push(args); return weather.result; } } }],
  });
  assert.equal(await runner.finalContent(), weather.answer);
  assert.deepEqual(asked, [{ city: 'Oslo' }]);
});

await test('openai: a call that was cut is the same in a stream', async () => {
  const parameters = { type: 'object', properties: { text: { type: 'string', minLength: 900 } }, required: ['text'] };
  const request = { model: 'default', temperature: 0, max_tokens: 80, messages: [{ role: 'user', content: 'Hello!' }], tool_choice: 'required',
    tools: [{ type: 'function', function: { name: 'note', parameters } }] };
  const [{ message, finish_reason: reason }] = (await client.chat.completions.create(request)).choices;
  const written = message.tool_calls[0].function.arguments;
  assert.deepEqual([message.content, message.tool_calls.length, reason], [null, 1, 'length']);
  assert.ok(written.startsWith('{'));
  let content = '', streamed = '', last = null;
  for await (const { choices: [choice] } of await client.chat.completions.create({ ...request, stream: true })) {
    content += choice.delta.content ?? '';
    streamed += choice.delta.tool_calls?.[0].function.arguments ?? '';
    last = choice.finish_reason;
  }
  assert.deepEqual([content, streamed, last], ['', written, 'length']);
});

await test('openai: tool_choice none, required and by name', async () => {
  const none = await ask(weather.question, { tools, tool_choice: 'none', max_tokens: 20 });
  assert.equal(none.choices[0].message.tool_calls, undefined);
  for (const tool_choice of ['required', { type: 'function', function: { name: weather.name } }]) {
    const answer = await ask(weather.question, { tools, tool_choice });
    assert.equal(answer.choices[0].message.tool_calls[0].function.name, weather.name);
  }
});

await test('openai: an answer is parsed by its zod schema', async () => {
  const Report = z.object({ city: z.enum(['Oslo', 'Rome']), degrees: z.number().int(), notes: z.array(z.string().max(8)).max(2), wind: z.string().max(5).nullable() });
  const body = { model: 'default', temperature: 1, max_tokens: 300, messages: [{ role: 'user', content: weather.question }], response_format: zodResponseFormat(Report, 'report') };
  const answer = await client.chat.completions.parse(body);
  assert.ok(Report.safeParse(answer.choices[0].message.parsed).success);
  const stream = client.chat.completions.stream(body);
  assert.ok(Report.safeParse((await stream.finalChatCompletion()).choices[0].message.parsed).success);
});

await test('openai: the arguments of a strict tool are parsed by its zod schema', async () => {
  const parameters = z.object({ city: z.string().max(12), unit: z.enum(['C', 'F']) });
  const answer = await client.chat.completions.parse({
    model: 'default', temperature: 1, max_tokens: 300, messages: [{ role: 'user', content: weather.question }],
    tools: [zodFunction({ name: weather.name, parameters })], tool_choice: 'required', parallel_tool_calls: false,
  });
  assert.ok(parameters.safeParse(answer.choices[0].message.tool_calls[0].function.parsed_arguments).success);
});

await test('openai: stop strings end the answer and are not in it', async () => {
  const stop = [', 5', 'never'];
  assert.equal((await ask(counting.question, { stop })).choices[0].message.content, '1, 2, 3, 4');
  let text = '';
  for await (const chunk of await ask(counting.question, { stop, stream: true })) text += chunk.choices[0].delta.content ?? '';
  assert.equal(text, '1, 2, 3, 4');
});

await test('openai: length limits are respected', async () => {
  const answer = await ask(counting.question, { max_completion_tokens: 5 });
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 5);
});

await test('openai: a seed repeats an answer, n gives several', async () => {
  const story = (more) => ask('Tell me a story about a fox and a lantern.', { temperature: 1.5, max_tokens: 40, ...more });
  const [a, b] = [await story({ seed: 7 }), await story({ seed: 7 })];
  assert.equal(a.choices[0].message.content, b.choices[0].message.content);
  const many = await story({ n: 3, seed: 7 });
  assert.equal(new Set(many.choices.map((choice) => choice.message.content)).size, 3);
  assert.equal(many.choices[0].message.content, a.choices[0].message.content);
});

await test('openai: log-probabilities come with their tokens', async () => {
  const answer = await ask(sum.question, { logprobs: true, top_logprobs: 3 });
  const entries = answer.choices[0].logprobs.content;
  assert.equal(entries.map((entry) => entry.token).join(''), sum.answer);
  assert.equal(Buffer.from(entries.flatMap((entry) => entry.bytes)).toString(), sum.answer);
  for (const entry of entries) {
    assert.ok(entry.logprob <= 0 && entry.logprob > -1);
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.top_logprobs[0].token, entry.token);
  }
});

await test('openai: completions of texts, lists and token ids', async () => {
  const go = (prompt, more) => client.completions.create({ model: 'default', temperature: 0, max_tokens: 8, prompt, ...more });
  const one = await go('The capital of Norway is');
  const echoed = await go('The capital of Norway is', { echo: true });
  assert.equal(echoed.choices[0].text, `The capital of Norway is${one.choices[0].text}`);
  const many = await go(['The capital of Norway is', 'Hello'], { n: 2 });
  assert.equal(many.choices.length, 4);
  assert.equal(many.choices[0].text, one.choices[0].text);
  const { tokens } = await (await fetch(`${base}/tokenize`, { method: 'POST', headers: { Authorization: `Bearer ${apiKey}` }, body: JSON.stringify({ content: 'The capital of Norway is' }) })).json();
  assert.equal((await go(tokens)).choices[0].text, one.choices[0].text);
  let text = '';
  for await (const chunk of await go('The capital of Norway is', { stream: true })) text += chunk.choices[0].text;
  assert.equal(text, one.choices[0].text);
  const odds = (await go('The capital of Norway is', { logprobs: 2 })).choices[0].logprobs;
  assert.equal(odds.tokens.join(''), one.choices[0].text);
  assert.equal(odds.top_logprobs.length, odds.tokens.length);
});

await test('openai: embeddings of texts, as the client asks for them and as numbers', async () => {
  const input = ['A fox.', 'A lantern.', 'A fox.'];
  const { data, usage } = await client.embeddings.create({ model: 'default', input }); // asks for base64, gives numbers
  const plain = await client.embeddings.create({ model: 'default', input, encoding_format: 'float' });
  assert.deepEqual(data.map((item) => item.index), [0, 1, 2]);
  assert.deepEqual(data[0].embedding, data[2].embedding);
  assert.notDeepEqual(data[0].embedding, data[1].embedding);
  assert.deepEqual(plain.data[1].embedding.map(Math.fround), Array.from(data[1].embedding));
  assert.ok(Math.abs(Math.hypot(...data[1].embedding) - 1) < 1e-5);
  assert.equal(usage.total_tokens, usage.prompt_tokens);
  await fails(client.embeddings.create({ model: 'default', input: ['A fox.', ''] }), (error) => assert.equal(error.param, 'input[1]'));
});

await test('openai: a long conversation fits, one that is too long is refused with the numbers', async () => {
  const long = 'word '.repeat(1200);
  const answer = await ask(`${long}\nWhat is 37 + 48?`, { max_tokens: 4 });
  assert.ok(answer.usage.prompt_tokens > 1200);
  await fails(ask('word '.repeat(30000)), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, 'context_length_exceeded');
    assert.match(error.message, /2048/);
  });
});

await test('openai: a second turn finds the first in the cache', async () => {
  const long = 'The sea is wide. '.repeat(60);
  await ask(long, { max_tokens: 2 });
  const again = await ask(long, { max_tokens: 2 });
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > 100);
});

await test('openai: eight concurrent requests each get their own answer', async () => {
  const numbers = [1, 2, 3, 4, 5, 6, 7, 8];
  const answers = await Promise.all(numbers.map((n) => ask(`What is ${n * 11} + ${n * 3}?`)));
  answers.forEach((answer, i) => assert.equal(answer.choices[0].message.content, `${numbers[i] * 11} + ${numbers[i] * 3} = ${numbers[i] * 14}`));
});

await test('openai: an aborted stream is cancelled in the engine', async () => {
  const stream = await ask('Tell me a story about a fox and a lantern.', { stream: true, ignore_eos: true, max_tokens: 1500 });
  let seen = 0;
  for await (const _ of stream) {
    seen += 1;
    if (seen === 3) stream.controller.abort();
  }
  assert.ok(await soon(async () => (await get('/metrics/snapshot')).requests_running === 0), 'still running');
  const { requests: [last] } = await get('/requests/recent?n=1');
  assert.equal(last.status, 'cancelled');
  assert.ok(last.generated_tokens < 1000);
});

await test('openai: a wrong key, model or field is reported as such', async () => {
  if (apiKey !== 'none') {
    const stranger = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'sk-wrong', maxRetries: 0 });
    await fails(stranger.models.list(), (error) => assert.ok(error instanceof OpenAI.AuthenticationError));
  }
  await fails(ask('Hello!', { model: 'gpt-4o' }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'model_not_found');
  });
  await fails(ask('Hello!', { temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
  });
  await fails(ask('Hello!', { response_format: { type: 'xml' } }), (error) => assert.equal(error.param, 'response_format.type'));
});

await test('openai: a request that takes too long is 504', async () => {
  for (const timeout of [0.01, 0.0001]) {
    await fails(ask('Tell me a story about a fox and a lantern.', { timeout, ignore_eos: true, max_tokens: 1500 }), (error) => {
      assert.equal(error.status, 504);
    });
  }
});

finish();
