// instructor-js: objects of a schema, by tools and by JSON.
import Instructor from '@instructor-ai/instructor';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { apiKey, assert, base, finish, test, weather } from './harness.mjs';

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
const schema = z.object({ city: z.enum(['Oslo', 'Rome']), degrees: z.number().int() });
const request = { model: 'default', temperature: 0, max_tokens: 300, messages: [{ role: 'user', content: weather.question }] };

for (const mode of ['TOOLS', 'JSON_SCHEMA']) {
  await test(`instructor: an object of a zod schema, mode ${mode}`, async () => {
    const client = Instructor({ client: openai, mode });
    const object = await client.chat.completions.create({ ...request, response_model: { schema, name: 'Report' }, max_retries: 0 });
    assert.ok(schema.safeParse({ city: object.city, degrees: object.degrees }).success, JSON.stringify(object));
  });
}

await test('openai: a chat is parsed by a zod schema', async () => {
  const parsed = await openai.chat.completions.parse({ ...request, response_format: zodResponseFormat(schema, 'report') });
  assert.ok(schema.safeParse(parsed.choices[0].message.parsed).success);
});

finish();
