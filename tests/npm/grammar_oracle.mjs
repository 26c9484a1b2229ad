// Random schemas for the grammar engine, and what Ajv thinks of the answers.
//   node grammar_oracle.mjs make COUNT SEED >REQUESTS     requests to grammar_tool: schema, instances, random answers
//   node grammar_oracle.mjs judge REQUESTS ANSWERS        exit 1 if Ajv rejects what the grammar accepts or generates,
//                                                         or if the grammar rejects too much of what is valid
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const [mode, first, second] = process.argv.slice(2);
let state = 0n;
function pick(n) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number(state >> 33n) % n;
}
const chance = (percent) => pick(100) < percent;
const oneOf = (list) => list[pick(list.length)];
const times = (n, make) => Array.from({ length: n }, make);

const names = ["a", "b", "cc", "d_e", '"q"', "\u00e9"];
const formats = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri"];
const patterns = ["^a", "b$", "a.b", "^[ab]*$", "x|y", "^(foo|bar)+$", "[0-9]{2}", "^.{2,4}$", "^\\w+$", '"', "^\u00e9", "^\\S+\\s?\\S$"];
const number = () => oneOf([pick(41) - 20, pick(4001) - 2000, (pick(41) - 20) / 2, (pick(201) - 100) / 4]);
const text = () => times(pick(7), () => oneOf([..."abxy019 \u00e9\"\\\n/"])).join("");

function value(depth) {
  const kind = pick(depth > 0 ? 10 : 7);
  if (kind < 2) return pick(61) - 30;
  if (kind < 3) return number();
  if (kind < 5) return oneOf([text(), "foo", "foobar", "a", "ab", "axb", "12"]);
  if (kind < 7) return oneOf([true, false, null]);
  if (kind < 8) return times(pick(4), () => value(depth - 1));
  return Object.fromEntries(times(pick(3), () => [oneOf([...names, "zz"]), value(depth - 1)]));
}

function numberSchema() {
  const schema = { type: oneOf(["integer", "number"]) };
  if (chance(50)) schema[oneOf(["minimum", "exclusiveMinimum"])] = number();
  if (chance(50)) schema[oneOf(["maximum", "exclusiveMaximum"])] = number() + 50;
  if (chance(25)) schema.multipleOf = oneOf([1, 2, 3, 7, 10, 0.5, 0.25]);
  return schema;
}

function stringSchema() {
  if (chance(20)) return { type: "string", format: oneOf(formats) };
  const schema = { type: "string" };
  if (chance(40)) schema.minLength = pick(5);
  if (chance(40)) schema.maxLength = 1 + pick(7);
  if (chance(35)) schema.pattern = oneOf(patterns);
  return schema;
}

function arraySchema(depth) {
  const schema = { type: "array" };
  if (chance(70)) schema.items = chance(10) ? false : make(depth - 1);
  if (chance(30)) schema.prefixItems = times(1 + pick(3), () => make(depth - 1));
  if (chance(35)) schema.minItems = pick(4);
  if (chance(35)) schema.maxItems = pick(5);
  return schema;
}

function objectSchema(depth) {
  const keys = names.filter(() => chance(40));
  const schema = { type: "object", properties: Object.fromEntries(keys.map((key) => [key, make(depth - 1)])) };
  schema.required = keys.filter(() => chance(50));
  if (chance(45)) schema.additionalProperties = false;
  else if (chance(30)) schema.additionalProperties = make(depth - 1);
  if (chance(10)) schema.patternProperties = { [oneOf(["^a", "b", "."])]: make(depth - 1) };
  if (chance(10)) schema.maxProperties = pick(5);
  if (chance(10)) schema.minProperties = pick(3);
  if (chance(5)) schema.propertyNames = oneOf([{ maxLength: 2 }, { pattern: "^[a-c]" }]);
  return schema;
}

function make(depth) {
  const kind = pick(100);
  if (kind < 4) return oneOf([true, {}]);
  if (kind < 20) return numberSchema();
  if (kind < 40) return stringSchema();
  if (kind < 46) return { enum: times(1 + pick(4), () => value(1)) };
  if (kind < 48) return { const: value(2) };
  if (kind < 55 || depth <= 0) return { type: oneOf(["boolean", "null", ["string", "null"], ["integer", "string"]]) };
  if (kind < 67) return arraySchema(depth);
  if (kind < 86) return objectSchema(depth);
  if (kind < 93) return { [oneOf(["anyOf", "anyOf", "oneOf"])]: times(1 + pick(3), () => make(depth - 1)) };
  if (kind < 97) return { allOf: [make(depth - 1), make(depth - 1)] };
  return { $ref: oneOf(["#/$defs/list", "#/$defs/node"]) };
}

const dialects = ["hermes", "granite", "llama3", "mistral", "deepseek", "glm", "longcat", "qwen3_coder", "kimi_k2",
  "harmony", "lfm2", "pythonic"];

const defs = {
  list: { type: "array", items: { $ref: "#/$defs/list" } },
  node: { type: "object", properties: { next: { $ref: "#/$defs/node" }, v: { type: "integer" } }, required: ["v"], additionalProperties: false },
};

// Something near an instance of the schema.
function near(schema, depth) {
  if (depth < 0 || typeof schema === "boolean" || chance(7)) return value(1);
  if (schema.$ref) return near(defs[schema.$ref.split("/").pop()], depth - 1);
  const members = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (members) return near(oneOf(members), depth - 1);
  if (schema.enum) return oneOf(schema.enum);
  if ("const" in schema) return schema.const;
  const type = Array.isArray(schema.type) ? oneOf(schema.type) : schema.type;
  const low = schema.minimum ?? schema.exclusiveMinimum ?? -50, high = schema.maximum ?? schema.exclusiveMaximum ?? 50;
  if (type === "integer") return Math.round(oneOf([low, high, low + 1, high - 1, (low + high) / 2]));
  if (type === "number") return oneOf([low, high, low + 0.25, high - 0.5, (low + high) / 2]);
  if (type === "string") return oneOf([text(), text(), "foo", "foobar", "ab", "axb", "x", "10", "2024-02-29"]);
  if (type === "array")
    return times(pick(5), (_, i) => near(schema.prefixItems?.[i] ?? schema.items ?? true, depth - 1));
  if (type !== "object") return oneOf([true, false, null]);
  const out = {};
  for (const key of Object.keys(schema.properties ?? {}))
    if (schema.required?.includes(key) || chance(50)) out[key] = near(schema.properties[key], depth - 1);
  if (chance(25)) out.zz = near(schema.additionalProperties ?? true, depth - 1);
  return out;
}

function writeRequests(count, seed) {
  state = BigInt(seed);
  for (let i = 0; i < count; i++) {
    const body = make(3);
    const grammar = { ...(typeof body === "boolean" ? {} : body), $defs: defs };
    const texts = times(12, () => JSON.stringify(near(grammar, 4)));
    console.log(JSON.stringify({ kind: "schema", grammar, texts, walks: 6, seed: 1 + pick(1000000) }));
    if (i % 2 === 0) continue;
    const parameters = { ...objectSchema(3), $defs: defs };
    console.log(JSON.stringify({ kind: "call", dialect: oneOf(dialects), grammar: parameters, texts: [], walks: 4,
      seed: 1 + pick(1000000) }));
  }
}

function judge(requests, answers) {
  const ajv = new Ajv({ strict: false, validateFormats: true });
  addFormats(ajv, { mode: "full" });
  let faults = 0, walks = 0, valid = 0, rejected = 0, refused = 0;
  const report = (what, request, text) => {
    if (++faults <= 5) console.log(`${what}: ${request.dialect ?? ""} ${JSON.stringify(request.grammar)} ${text}`);
  };
  requests.forEach((request, i) => {
    const answer = answers[i], validate = ajv.compile(request.grammar);
    if (answer.error) {
      refused++;
      if (/matches no text/.test(answer.error))
        request.texts.forEach((t) => validate(JSON.parse(t)) && report("not empty", request, t));
      return;
    }
    answer.walks.forEach((t) => {
      walks++;
      let value;
      try { value = JSON.parse(t); } catch { report("not JSON", request, t); return; }
      if (!validate(value)) report("generated", request, `${t} ${ajv.errorsText(validate.errors)}`);
    });
    request.texts.forEach((t, k) => {
      const good = validate(JSON.parse(t));
      if (answer.verdicts[k] && !good) report("accepted", request, t);
      valid += good;
      rejected += good && !answer.verdicts[k];
    });
  });
  console.log(`${requests.length} schemas, ${refused} refused, ${walks} answers, ${rejected} of ${valid} valid instances rejected`);
  // The order of properties and the spelling of values are fixed, so some valid instances are rejected.
  return faults === 0 && walks > requests.length && rejected * 20 < valid;
}

const lines = (file) => readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
if (mode === "make") writeRequests(Number(first), second);
else process.exit(judge(lines(first), lines(second)) ? 0 : 1);
