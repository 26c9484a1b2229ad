// Structured output: answers to random schemas, drawn at temperature 1, are checked by ajv, a validator that is not ours.
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { apiKey, assert, base, finish, test, weather } from './harness.mjs';

const ajv = addFormats.default(new Ajv2020.default({ strict: false }));

async function post(body) {
  const response = await fetch(`${base}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ temperature: 1, max_tokens: 600, ...body }),
  });
  const json = await response.json();
  return { status: response.status, ...json };
}
// Tools are part of the prompt, and random ones may not fit; that counts as cut.
const ask = async (content, more) => {
  const answer = await post({ messages: [{ role: 'user', content }], ...more });
  if (more.tools && answer.error?.code === 'context_length_exceeded') return [{ finish_reason: 'length' }];
  assert.equal(answer.status, 200, JSON.stringify(answer.error));
  return answer.choices;
};

// ---- random schemas; the same for the same seed ----

let state = Number(process.env.SHOAL_FORMS_SEED ?? 1);
const random = (below) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
};
const chance = (percent) => random(100) < percent;
const pick = (list) => list[random(list.length)];

const leaves = [
  () => ({ type: 'string', maxLength: 1 + random(12), ...(chance(30) ? { minLength: 1 } : {}) }),
  () => ({ type: 'string', pattern: pick(['^[a-z]{2,5}$', '^\\d{3}-\\d{4}$', '^(red|green) [0-9]+$']), maxLength: 20 }),
  () => ({ type: 'string', format: pick(['date', 'time', 'date-time', 'uuid', 'email', 'ipv4', 'ipv6', 'hostname']), maxLength: 60 }),
  () => ({ type: 'integer', minimum: random(50) - 60, maximum: random(2000) }),
  () => ({ type: 'integer', multipleOf: 1 + random(7), minimum: 0, exclusiveMaximum: 500 }),
  () => ({ type: 'number', minimum: -5, maximum: 5 }),
  () => ({ type: ['boolean', 'null'] }),
  () => ({ enum: ['a"b', 'ü\n', 5, null, { x: [1] }] }),
  () => ({ const: pick(['yes', 1.5, true, [1, 'two']]) }),
  () => ({ $ref: '#/$defs/pair' }),
];

function schemaOf(depth) {
  if (depth === 0 || chance(40)) return pick(leaves)();
  if (chance(25)) return { anyOf: [schemaOf(depth - 1), schemaOf(depth - 1)] };
  if (chance(30)) return { type: 'array', items: schemaOf(depth - 1), minItems: random(2), maxItems: 3 };
  if (chance(20)) return { type: 'array', prefixItems: [schemaOf(0), schemaOf(0)], items: false, minItems: 2 };
  return objectOf(depth);
}

function objectOf(depth) {
  const properties = {};
  const required = [];
  for (const name of ['name', 'n', 'ö "x"', 'list', 'z'].slice(0, 1 + random(5))) {
    properties[name] = schemaOf(depth - 1);
    if (chance(60)) required.push(name);
  }
  return { type: 'object', properties, required, additionalProperties: false };
}

const pair = { type: 'object', properties: { l: { type: 'integer', maximum: 9, minimum: 0 }, r: { $ref: '#/$defs/pair' } }, required: ['l'], additionalProperties: false, maxProperties: 2 };
const rootOf = () => ({ ...objectOf(3), $defs: { pair } });

// Runs a task for each number, eight at a time.
async function times(count, task) {
  let next = 0;
  const worker = async () => { while (next < count) { next += 1; await task(next); } };
  await Promise.all(Array.from({ length: 8 }, worker));
}

function check(schema, text) {
  const validate = ajv.compile(schema);
  let value;
  try { value = JSON.parse(text); } catch { assert.fail(`not JSON: ${text}\n${JSON.stringify(schema)}`); }
  assert.ok(validate(value), `${JSON.stringify(validate.errors?.[0])}\n${text}\n${JSON.stringify(schema)}`);
}

const rounds = Number(process.env.SHOAL_FORMS_ROUNDS ?? 16);

await test('forms: every complete answer is valid under its random schema', async () => {
  let whole = 0;
  await times(rounds, async (i) => {
    const schema = rootOf();
    const fields = i % 3 === 0 ? { guided_json: schema }
      : i % 3 === 1 ? { structured_outputs: { json: schema } }
        : { response_format: { type: 'json_schema', json_schema: { name: 'x', strict: i % 2 === 0, schema } } };
    for (const choice of await ask('Describe the weather in Oslo.', { ...fields, n: 2, seed: i })) {
      if (choice.finish_reason === 'length') continue;
      whole += 1;
      check(schema, choice.message.content);
    }
  });
  assert.ok(whole > rounds, `only ${whole} of ${2 * rounds} answers were complete`);
});

await test('forms: every required call is valid under its random parameters', async () => {
  let whole = 0;
  await times(rounds, async (i) => {
    const schemas = { get_weather: rootOf(), look_up: rootOf() };
    const tools = Object.entries(schemas).map(([name, parameters]) => ({ type: 'function', function: { name, parameters } }));
    const tool_choice = i % 2 === 0 ? 'required' : { type: 'function', function: { name: 'look_up' } };
    const [choice] = await ask(weather.question, { tools, tool_choice, seed: i, parallel_tool_calls: i % 4 === 0 });
    if (choice.finish_reason === 'length') return;
    whole += 1;
    assert.equal(choice.finish_reason, 'tool_calls');
    assert.equal(choice.message.content, null);
    const calls = choice.message.tool_calls;
    if (i % 4 !== 0) assert.equal(calls.length, 1);
    if (i % 2 !== 0) assert.equal(calls[0].function.name, 'look_up');
    for (const { function: call } of calls) check(schemas[call.name], call.arguments);
  });
  assert.ok(whole > rounds / 2, `only ${whole} of ${rounds} answers were complete`);
});

await test('forms: strict tools are called with valid arguments, or not at all', async () => {
  await times(rounds, async (i) => {
    const parameters = rootOf();
    const tools = [{ type: 'function', function: { name: weather.name, strict: true, parameters } }];
    const [choice] = await ask(weather.question, { tools, seed: i });
    for (const { function: call } of choice.finish_reason === 'length' ? [] : choice.message.tool_calls ?? []) check(parameters, call.arguments);
  });
});

await test('forms: patterns, choices and grammars are matched', async () => {
  const cases = [
    [{ guided_regex: '[a-f]{3}-\\d{1,3}' }, /^[a-f]{3}-\d{1,3}$/],
    [{ structured_outputs: { regex: '(Oslo|Rome)!?' } }, /^(Oslo|Rome)!?$/],
    [{ guided_choice: ['positive', 'negative'] }, /^(positive|negative)$/],
    [{ structured_outputs: { choice: ['1', '2', '3'] } }, /^[123]$/],
    [{ grammar: 'root ::= item ("," item){2}\nitem ::= [0-9]+ | "(" item ")"' }, /^[0-9()]+,[0-9()]+,[0-9()]+$/],
    [{ guided_grammar: 'start: "SELECT " column\ncolumn: "a" | "b"' }, /^SELECT [ab]$/],
  ];
  for (const [fields, pattern] of cases) {
    for (const choice of await ask('Say something.', { ...fields, n: 3, max_tokens: 200 })) {
      if (choice.finish_reason !== 'length') assert.match(choice.message.content, pattern);
    }
  }
  for (const choice of await ask('Say something.', { response_format: { type: 'json_object' }, n: 3, max_tokens: 300 })) {
    if (choice.finish_reason !== 'length') assert.equal(typeof JSON.parse(choice.message.content), 'object');
  }
});

await test('forms: what cannot be enforced is refused by field and path', async () => {
  const messages = [{ role: 'user', content: 'Hello!' }];
  const refused = async (fields, param, part) => {
    const answer = await post({ messages, ...fields });
    assert.equal(answer.status, 400);
    assert.equal(answer.error.param, param);
    assert.ok(answer.error.message.includes(part), answer.error.message);
  };
  await refused({ guided_json: { properties: { a: { not: {} } } } }, 'guided_json', '/properties/a/not');
  await refused({ guided_regex: 'a(?!b)' }, 'guided_regex', 'guided_regex');
  await refused({ grammar: 'root ::= missing' }, 'grammar', 'missing');
  await refused({ guided_regex: 'a', guided_choice: ['a'] }, 'guided_choice', 'only one');
  await refused({ guided_choice: ['a'], ignore_eos: true }, 'ignore_eos', 'guided_choice');
  await refused(
    { tools: [{ type: 'function', function: { name: 'f', parameters: { if: {} } } }], tool_choice: 'required' },
    'tools[0].function.parameters', '/if',
  );
});

finish();
