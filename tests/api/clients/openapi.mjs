// The OpenAPI document, held against the server: a validator that we did not write reads it, answers have the types that
// it gives them, it refuses what the server refuses, and a client is generated from it. SHOAL_OPENAPI_SEED and
// SHOAL_OPENAPI_CASES choose the random requests.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv2020 from 'ajv/dist/2020.js';
import createClient from 'openapi-fetch';
import openapiTS, { astToString } from 'openapi-typescript';
import { apiKey, assert, base, finish, sum, test } from './harness.mjs';

const document = await (await fetch(`${base}/openapi.json`)).json();
const headers = { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' };
const post = (path, body) => fetch(base + path, { method: 'POST', headers, body: JSON.stringify(body) });

await test('openapi: the document is valid OpenAPI 3.1', async () => {
  const validator = new Validator();
  const result = await validator.validate(structuredClone(document));
  assert.ok(result.valid, JSON.stringify(result.errors)?.slice(0, 1000));
  assert.equal(validator.version, '3.1');
});

// A schema of the document; with `closed`, objects may have no members besides those that are listed.
const ajv = new Ajv2020({ strict: false, allErrors: true });
function compile(schema, closed) {
  const walk = (node) => {
    if (Array.isArray(node)) return node.map(walk);
    if (node === null || typeof node !== 'object') return node;
    const out = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, walk(value)]));
    if (closed && out.properties && out.additionalProperties === undefined) out.additionalProperties = false;
    return out;
  };
  return ajv.compile({ ...walk(schema), components: walk(document.components) });
}
const answerSchema = (path, method, type = 'application/json') =>
  document.paths[path][method].responses['200'].content[type].schema;
const hello = { messages: [{ role: 'user', content: sum.question }], max_tokens: 3 };
const bodies = {
  '/v1/chat/completions': { ...hello, logprobs: true, top_logprobs: 1, return_token_ids: true, prompt_logprobs: 1, conversation_id: 'c' },
  '/chat/completions': hello,
  '/v1/completions': { prompt: 'The fox', max_tokens: 2, echo: true, logprobs: 1, return_token_ids: true, prompt_logprobs: 1 },
  '/tokenize': { prompt: 'The fox', return_token_strs: true, with_pieces: true },
  '/detokenize': { tokens: [5, 6] },
  '/apply-template': hello,
  '/v1/embeddings': { input: ['a', 'b'] },
};

// The document itself, and what this server does not let clients see.
const unasked = ['/openapi.json', '/models/local'];
await test('openapi: every answer has the type that the document gives it, and no member besides', async () => {
  for (const [path, operations] of Object.entries(document.paths))
    for (const [method, operation] of Object.entries(operations)) {
      const schema = operation.responses['200'].content['application/json']?.schema;
      if (schema === undefined || unasked.includes(path) || !operation.tags.every((tag) => ['OpenAI', 'Text', 'Status'].includes(tag))) continue;
      if (method === 'post' && bodies[path] === undefined) continue;
      assert.ok(schema.$ref, `${method} ${path} has no type`);
      const where = path.replace('{id}', 'default');
      const answer = method === 'get' ? await fetch(base + where, { headers }) : await post(path, bodies[path]);
      assert.equal(answer.status, 200, path);
      const check = compile(schema, true);
      assert.ok(check(await answer.json()), `${path}: ${JSON.stringify(check.errors).slice(0, 600)}`);
    }
});

await test('openapi: so has every part of a stream, and an error', async () => {
  for (const path of ['/v1/chat/completions', '/v1/completions']) {
    const check = compile(answerSchema(path, 'post', 'text/event-stream').contentSchema, true);
    const answer = await post(path, { ...bodies[path], stream: true, stream_options: { include_usage: true } });
    for (const event of (await answer.text()).split('\n\n').filter((text) => text.startsWith('data: {')))
      assert.ok(check(JSON.parse(event.slice(6))), `${path}: ${JSON.stringify(check.errors).slice(0, 600)}\n${event}`);
  }
  const wrong = compile(document.components.schemas.Error, true);
  assert.ok(wrong(await (await post('/v1/completions', {})).json()), JSON.stringify(wrong.errors));
});

// Random requests: valid ones of which one place is changed. Where the document and the server disagree, one of them is
// wrong. What no schema can say is left out of the changes: whether a grammar compiles, which names and ids exist.
let seed = Number(process.env.SHOAL_OPENAPI_SEED ?? 1);
const random = (count) => { seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff; return (seed >> 8) % count; };
const pick = (list) => list[random(list.length)];
const tool = { type: 'function', function: { name: 'f', parameters: { type: 'object' } } };
const part = { type: 'text', text: 'a' };
const requests = {
  '/v1/chat/completions': [
    { ...hello, tools: [tool], tool_choice: 'auto', stop: ['x', 'y'], logit_bias: { 5: 1 }, stream_options: { include_usage: true } },
    { ...hello, messages: [{ role: 'system', content: [part, part] }, { role: 'user', content: 'a' }], logprobs: true, top_logprobs: 2 },
    { ...hello, messages: [...hello.messages, { role: 'assistant', content: 'a', tool_calls: [] }], add_generation_prompt: true, seed: 1 },
    { ...hello, response_format: { type: 'text' }, repetition_penalty: 1.1, top_k: -1, chat_template_kwargs: {}, best_of: 1 },
    { ...hello, continue_final_message: false, parallel_tool_calls: true, presence_penalty: 0, timeout: 9, min_tokens: 0, user: 'a' },
  ],
  '/v1/completions': [
    { prompt: 'The fox', max_tokens: 1, stop: 'x', stop_token_ids: [1], echo: true, logprobs: 1, suffix: '' },
    { prompt: ['a', [5, 6]], max_tokens: 0, n: 1, temperature: 0, top_p: 1, min_p: 0, frequency_penalty: 0, prompt_logprobs: 1 },
    { prompt: [5, 6], max_tokens: 1, response_format: { type: 'text' }, ignore_eos: false, stream: false, metadata: {} },
  ],
  '/tokenize': [{ content: 'a', add_special: true, with_pieces: false }, { prompt: 'a', add_special_tokens: false }],
  '/detokenize': [{ tokens: [5, 6] }],
};
const unsayable = new Set(['model', 'name', 'type.text', 'suffix', 'tool_choice.name', 'n']);
const values = [null, true, false, 0, 1, -1, 0.5, 3, 200, 1e9, -1e9, 'a', 'auto', 'required', 'text', 'json_object', 'json_schema', [], {},
  [1], ['a'], [''], [[]], [[1]], [{}], [null], { a: 1 }, { type: 'text' }, { type: 'function' }, { function: { name: 7 } }, 'x'.repeat(600)];

function places(node, path = []) {
  const here = path.length === 0 ? [] : [path];
  if (node === null || typeof node !== 'object') return here;
  return [...here, ...Object.keys(node).flatMap((key) => places(node[key], [...path, key]))];
}

function change(request) {
  const out = structuredClone(request);
  const path = pick(places(out));
  if (unsayable.has(path.at(-1))) return null;
  const parent = path.slice(0, -1).reduce((node, key) => node[key], out);
  const key = path.at(-1);
  if (random(4) > 0) parent[key] = pick(values);
  else if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else delete parent[key];
  return out;
}

await test('openapi: the document refuses what the server refuses, and nothing else', async () => {
  const checks = Object.fromEntries(Object.keys(requests).map((path) =>
    [path, compile(document.paths[path].post.requestBody.content['application/json'].schema, false)]));
  let refused = 0;
  const cases = Number(process.env.SHOAL_OPENAPI_CASES ?? 250);
  for (const path of Object.keys(requests))
    for (const request of requests[path]) assert.ok(checks[path](request), `${path}: ${JSON.stringify(checks[path].errors)}`);
  for (let i = 0; i < cases; i += 1) {
    const path = pick(Object.keys(requests));
    const request = change(pick(requests[path]));
    if (request === null) continue;
    const answer = await post(path, request);
    const text = await answer.text();
    if (answer.status === 404 || /chat template|from 0 to 4095|token id \d+|is empty|no tokens/.test(text)) continue;
    assert.ok([200, 400].includes(answer.status), `${answer.status} ${text}`);
    refused += answer.status === 400;
    assert.equal(checks[path](request), answer.status === 200,
      `${path} ${JSON.stringify(request)}\nserver: ${answer.status} ${text.slice(0, 300)}\ndocument: ${JSON.stringify(checks[path].errors)?.slice(0, 600)}`);
  }
  assert.ok(refused > cases / 10 && refused < cases, `${refused} of ${cases} were refused`);
});

// The client that openapi-typescript generates: the compiler accepts right uses and rejects wrong ones, and it runs.
const use = `import createClient from 'openapi-fetch';
import type { paths } from './openapi_types.js';
export async function ask(client: ReturnType<typeof createClient<paths>>): Promise<string> {
  const { data, error } = await client.POST('/v1/chat/completions', {
    body: { messages: [{ role: 'user', content: 'a' }], max_tokens: 3, n: 1, stream: false },
  });
  if (error) throw new Error(error.error.message);
  if (typeof data === 'string') throw new Error('a stream');
  const text: string | null = data.choices[0]!.message.content;
  const load = await client.GET('/load');
  const count: number = load.data!.server_load;
  // @ts-expect-error
  const wrong: string = data.usage.prompt_tokens;
  // @ts-expect-error
  await client.POST('/tokenize', { body: { content: 7 } });
  return \`\${text} \${count} \${wrong}\`;
}
`;

await test('openapi: a client is generated from the document, compiles and works', async () => {
  const folder = new URL('.', import.meta.url).pathname;
  writeFileSync(`${folder}openapi_types.ts`, astToString(await openapiTS(structuredClone(document), { silent: true })));
  writeFileSync(`${folder}openapi_use.ts`, use);
  try {
    execFileSync(process.execPath, [`${folder}node_modules/typescript/bin/tsc`, '--noEmit', '--strict', '--skipLibCheck',
      '--module', 'nodenext', '--target', 'es2022', `${folder}openapi_use.ts`], { stdio: 'pipe', timeout: 100000 });
  } catch (error) {
    assert.fail(String(error.stdout));
  }
  const client = createClient({ baseUrl: base, headers });
  const { data } = await client.POST('/v1/chat/completions', { body: { ...hello, max_tokens: 30, temperature: 0 } });
  assert.match(data.choices[0].message.content, /85/);
  const { error, response } = await client.POST('/v1/completions', { body: { prompt: 'a', max_tokens: -1 } });
  assert.equal(response.status, 400);
  assert.equal(error.error.param, 'max_tokens');
});

finish();
