// Checks the OpenAPI document with a validator that we did not write.
import { Validator } from '@seriousme/openapi-schema-validator';
import { assert, base, finish, test } from './harness.mjs';

await test('openapi: the document is valid OpenAPI 3.1', async () => {
  const document = await (await fetch(`${base}/openapi.json`)).json();
  const validator = new Validator();
  const result = await validator.validate(document);
  assert.ok(result.valid, JSON.stringify(result.errors)?.slice(0, 1000));
  assert.equal(validator.version, '3.1');
});

finish();
