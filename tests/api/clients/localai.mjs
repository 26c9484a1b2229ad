// LocalAI's calls with @grpc/grpc-js, which reads src/grpc/backend.proto by itself. Answers are compared with those of
// the HTTP API of another server with the same model.
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import { assert, base, finish, soon, story, sum, test } from './harness.mjs';

const shape = protoLoader.loadSync(process.env.SHOAL_TEST_PROTO, { keepCase: true, defaults: true, enums: String });
const { backend } = grpc.loadPackageDefinition(shape);
const token = new grpc.Metadata();
token.set('authorization', `Bearer ${process.env.SHOAL_TEST_TOKEN}`);
const client = new backend.Backend(process.env.SHOAL_TEST_GRPC, grpc.credentials.createInsecure());

const call = (name, message = {}, metadata = token, options = {}) => new Promise((resolve, reject) => {
  client[name](message, metadata, options, (error, reply) => (error ? reject(error) : resolve(reply)));
});
const text = async (message, options = {}) => {
  let whole = '';
  for await (const part of client.PredictStream(message, token, options)) whole += part.message.toString();
  return whole;
};
const post = async (path, body) => (await fetch(base + path, {
  method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
})).json();
const idle = () => soon(async () => (await call('Status')).state === 'READY');

await test('grpc-js: LoadModel and Status', async () => {
  await assert.rejects(call('Health', {}, new grpc.Metadata()), { code: grpc.status.UNAUTHENTICATED });
  const result = await call('LoadModel', { Model: process.env.SHOAL_TEST_MODEL, Threads: 4 });
  assert.ok(result.success, result.message);
  assert.equal((await call('Status')).state, 'READY');
});

await test('grpc-js: Predict answers a conversation', async () => {
  const Messages = [{ role: 'user', content: sum.question }];
  const reply = await call('Predict', { UseTokenizerTemplate: true, Messages });
  assert.equal(reply.message.toString(), sum.answer);
  assert.equal(reply.chat_deltas[0].content, sum.answer);
});

await test('grpc-js: PredictStream is what /v1/completions answers at the same seed', async () => {
  const want = await post('/v1/completions', { prompt: story, seed: 9, temperature: 0.8, max_tokens: 50 });
  assert.equal(await text({ Prompt: story, Seed: 9, Temperature: 0.8, Tokens: 50 }), want.choices[0].text);
});

await test('grpc-js: eight streams at once', async () => {
  const asked = Array.from({ length: 8 }, (_, i) => ({ Prompt: 'Once upon a', Seed: i + 1, Temperature: 1, Tokens: 30 }));
  const together = await Promise.all(asked.map((message) => text(message)));
  for (const i of [0, 7]) assert.equal(together[i], await text(asked[i]));
});

await test('grpc-js: a stream is cancelled, another has a deadline', async () => {
  const endless = { Prompt: 'Once', IgnoreEOS: true, Tokens: 800 };
  const running = client.PredictStream(endless, token);
  await assert.rejects(async () => { for await (const _ of running) running.cancel(); }, { code: grpc.status.CANCELLED });
  assert.ok(await idle());
  await assert.rejects(text(endless, { deadline: Date.now() + 50 }), { code: grpc.status.DEADLINE_EXCEEDED });
  assert.ok(await idle());
});

await test('grpc-js: compressed messages are refused, Free unloads', async () => {
  const zipping = new backend.Backend(process.env.SHOAL_TEST_GRPC, grpc.credentials.createInsecure(), {
    'grpc.default_compression_algorithm': 2,
  });
  const refusal = new Promise((resolve, reject) => {
    zipping.TokenizeString({ Prompt: 'x'.repeat(2000) }, token, (error) => (error ? reject(error) : resolve()));
  });
  await assert.rejects(refusal, { code: grpc.status.UNIMPLEMENTED });
  zipping.close();
  assert.ok((await call('Free')).success);
  assert.equal((await call('Status')).state, 'UNINITIALIZED');
});

client.close();
finish();
