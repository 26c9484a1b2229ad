// Anthropic's own package.
import Anthropic from '@anthropic-ai/sdk';
import { aborted, apiKey, assert, base, counting, finish, replayed, story, sum, test, weather } from './harness.mjs';

const client = new Anthropic({ baseURL: base, apiKey, authToken: null, maxRetries: 0 });
const settings = { model: 'default', max_tokens: 200, temperature: 0 };
const user = (content) => ({ role: 'user', content });
const tools = [{ name: weather.name, description: weather.description, input_schema: weather.parameters }];

await test('anthropic: a message is answered', async () => {
  const message = await client.messages.create({ ...settings, messages: [user(sum.question)], metadata: { user_id: 'u' } });
  assert.deepEqual([message.content[0].text, message.stop_reason], [sum.answer, 'end_turn']);
  assert.ok(message.usage.input_tokens + message.usage.cache_read_input_tokens > 5 && message.usage.output_tokens > 5);
  assert.match(message._request_id, /^req_/);
});

await test('anthropic: a message is streamed', async () => {
  const stream = client.messages.stream({ ...settings, messages: [user(counting.question)] });
  let text = '';
  stream.on('text', (piece) => { text += piece; });
  const message = await stream.finalMessage();
  assert.deepEqual([text, message.content[0].text, message.stop_reason], [counting.answer, counting.answer, 'end_turn']);
  assert.ok(message.usage.output_tokens > 20);
});

await test('anthropic: a system prompt in blocks and stop sequences', async () => {
  const message = await client.messages.create({ ...settings, stop_sequences: [' 9,'], messages: [user([{ type: 'text', text: counting.question }])],
    system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }] });
  if (message.stop_reason === 'stop_sequence') assert.equal(message.stop_sequence, ' 9,');
  else assert.equal(message.stop_reason, 'end_turn');
});

for (const streamed of [false, true]) {
  await test(`anthropic: a tool is used and its result read${streamed ? ', in a stream' : ''}`, async () => {
    const ask = (messages) => (streamed ? client.messages.stream({ ...settings, tools, messages }).finalMessage() : client.messages.create({ ...settings, tools, messages }));
    const messages = [user(weather.question)];
    const first = await ask(messages);
    const call = first.content.find((block) => block.type === 'tool_use');
    assert.deepEqual([call.name, call.input, first.stop_reason], [weather.name, { city: 'Oslo' }, 'tool_use']);
    messages.push({ role: 'assistant', content: first.content }, user([{ type: 'tool_result', tool_use_id: call.id, content: weather.result }]));
    assert.equal((await ask(messages)).content[0].text, weather.answer);
  });
}

await test('anthropic: a tool can be forced', async () => {
  const message = await client.messages.create({ ...settings, tools, tool_choice: { type: 'tool', name: weather.name }, messages: [user('Hello!')] });
  assert.equal(message.content[0].type, 'tool_use');
});

await test('anthropic: a call that was cut is a block that can be read', async () => {
  const request = { ...settings, max_tokens: 80, messages: [user('Hello!')], tool_choice: { type: 'any' },
    tools: [{ name: 'note', input_schema: { type: 'object', properties: { text: { type: 'string', minLength: 900 } }, required: ['text'] } }] };
  const whole = await client.messages.create(request), streamed = await client.messages.stream(request).finalMessage();
  for (const message of [whole, streamed])
    assert.deepEqual([message.content.map((block) => block.type), message.content[0].name, typeof message.content[0].input, message.stop_reason],
      [['tool_use'], 'note', 'object', 'max_tokens']);
});

await test('anthropic: an answer has the form of a schema', async () => {
  const schema = { type: 'object', properties: { city: { enum: ['Oslo', 'Rome'] } }, required: ['city'], additionalProperties: false };
  const message = await client.messages.create({ ...settings, output_config: { format: { type: 'json_schema', schema } }, messages: [user(weather.question)] });
  assert.ok(['Oslo', 'Rome'].includes(JSON.parse(message.content[0].text).city));
});

await test('anthropic: tokens are counted, and the models listed', async () => {
  const { input_tokens: counted } = await client.messages.countTokens({ model: 'default', messages: [user(sum.question)] });
  const { usage } = await client.messages.create({ ...settings, messages: [user(sum.question)] });
  assert.equal(counted, usage.input_tokens + usage.cache_read_input_tokens);
  const models = [];
  for await (const model of client.models.list()) models.push(model.type);
  assert.deepEqual(models, ['model']);
});

await test('anthropic: errors are those of Anthropic', async () => {
  const refused = (error, kind, type) => error instanceof kind && error.error.error.type === type;
  await assert.rejects(client.messages.create({ ...settings, model: 'claude-opus-4-5', messages: [user('x')] }),
    (error) => refused(error, Anthropic.NotFoundError, 'not_found_error') && /claude-opus-4-5/.test(error.message));
  await assert.rejects(client.messages.create({ ...settings, messages: [user([{ type: 'image', source: { type: 'url', url: 'http://x' } }])] }),
    (error) => refused(error, Anthropic.BadRequestError, 'invalid_request_error') && /image/.test(error.message));
  if (apiKey === 'none') return;
  const stranger = new Anthropic({ baseURL: base, apiKey: 'sk-wrong', authToken: null, maxRetries: 0 });
  await assert.rejects(stranger.messages.create({ ...settings, messages: [user('x')] }), (error) => refused(error, Anthropic.AuthenticationError, 'authentication_error'));
});

await test('anthropic: an aborted stream is cancelled in the engine', async () => {
  const stream = client.messages.stream({ ...settings, max_tokens: 1500, ignore_eos: true, messages: [user(story)] });
  await aborted(stream, () => stream.abort());
});

await replayed('anthropic: a stream goes on with the same text after a rank was killed', async function* texts() {
  const stream = await client.messages.create({ ...settings, stream: true, max_tokens: 300, seed: 3, temperature: 1, ignore_eos: true, messages: [user(story)] });
  for await (const event of stream) if (event.delta?.type === 'text_delta') yield event.delta.text;
});

finish();
