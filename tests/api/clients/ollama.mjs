// Ollama's own package.
import { Ollama } from 'ollama';
import { aborted, apiKey, assert, base, counting, finish, replayed, story, sum, test, weather } from './harness.mjs';

const client = new Ollama({ host: base, headers: { Authorization: `Bearer ${apiKey}` } });
const options = { temperature: 0 };
const settings = { model: 'default', options };
const user = (content) => ({ role: 'user', content });
const tools = [{ type: 'function', function: { name: weather.name, description: weather.description, parameters: weather.parameters } }];

await test('ollama: a chat is answered', async () => {
  const answer = await client.chat({ ...settings, messages: [user(sum.question)] });
  assert.deepEqual([answer.message.content, answer.done, answer.done_reason], [sum.answer, true, 'stop']);
  assert.ok(answer.eval_count > 5 && answer.total_duration > 0 && answer.eval_duration > 0);
});

await test('ollama: a chat and a prompt are streamed', async () => {
  let text = '';
  for await (const part of await client.chat({ ...settings, messages: [user(counting.question)], stream: true })) text += part.message.content;
  assert.equal(text, counting.answer);
  text = '';
  for await (const part of await client.generate({ ...settings, prompt: counting.question, stream: true })) text += part.response;
  assert.equal(text, counting.answer);
});

for (const stream of [false, true]) {
  await test(`ollama: a tool is called and its result used${stream ? ', in a stream' : ''}`, async () => {
    const messages = [user(weather.question)];
    const answer = await client.chat({ ...settings, messages, tools, stream });
    let message = answer.message;
    if (stream) for await (const part of answer) if (part.message.tool_calls) message = part.message;
    assert.deepEqual(message.tool_calls[0].function, { name: weather.name, arguments: { city: 'Oslo' } });
    messages.push(message, { role: 'tool', tool_name: weather.name, content: weather.result });
    assert.equal((await client.chat({ ...settings, messages, tools })).message.content, weather.answer);
  });
}

await test('ollama: texts become vectors', async () => {
  const input = ['A fox.', 'A hen.', 'A fox.'];
  const { embeddings, prompt_eval_count: tokens } = await client.embed({ model: 'default', input });
  assert.equal(embeddings.length, 3);
  assert.deepEqual(embeddings[0], embeddings[2]);
  assert.ok(Math.abs(Math.hypot(...embeddings[1]) - 1) < 1e-5 && tokens >= 6);
  assert.deepEqual((await client.embeddings({ model: 'default', prompt: input[1] })).embedding, embeddings[1]);
});

await test('ollama: an answer has the form of a schema, or is some JSON', async () => {
  const format = { type: 'object', properties: { city: { enum: ['Oslo', 'Rome'] } }, required: ['city'], additionalProperties: false };
  const shaped = await client.chat({ ...settings, format, messages: [user(weather.question)] });
  assert.ok(['Oslo', 'Rome'].includes(JSON.parse(shaped.message.content).city));
  const loose = await client.generate({ ...settings, format: 'json', prompt: weather.question, options: { ...options, num_predict: 300 } });
  if (loose.done_reason === 'stop') assert.equal(typeof JSON.parse(loose.response), 'object');
});

await test('ollama: a raw prompt is continued', async () => {
  const answer = await client.generate({ ...settings, raw: true, prompt: 'The capital of Norway is', options: { ...options, num_predict: 6 } });
  assert.ok(answer.response.length > 0 && answer.eval_count <= 6);
});

await test('ollama: the model is listed, shown, running and loaded', async () => {
  const { models: [{ name }] } = await client.list();
  assert.ok((await client.show({ model: `${name}:latest` })).capabilities.includes('tools'));
  assert.equal((await client.ps()).models[0].name, name);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  assert.equal((await client.generate({ model: name, prompt: '' })).done_reason, 'load');
  assert.equal((await fetch(base, { method: 'HEAD' })).status, 200);
});

await test('ollama: errors are those of Ollama', async () => {
  const refused = (error, status, words) => error.name === 'ResponseError' && error.status_code === status && words.test(error.message);
  await assert.rejects(client.chat({ model: 'llama3.2', messages: [user('x')] }), (error) => refused(error, 404, /llama3\.2/));
  await assert.rejects(client.chat({ ...settings, messages: [{ ...user('x'), images: ['aGk='] }] }), (error) => refused(error, 400, /images/));
  await assert.rejects(client.pull({ model: 'a/b' }), (error) => refused(error, 403, /--manage-models/));
});

await test('ollama: an aborted stream is cancelled in the engine', async () => {
  const stream = await client.chat({ ...settings, messages: [user(story)], stream: true, options: { ...options, ignore_eos: true, num_predict: 1500 } });
  await aborted(stream, () => stream.abort());
});

await replayed('ollama: a stream goes on with the same text after a rank was killed', async function* texts() {
  const stream = await client.chat({ ...settings, messages: [user(story)], stream: true, options: { temperature: 1, seed: 3, ignore_eos: true, num_predict: 300 } });
  for await (const part of stream) yield part.message.content;
});

finish();
