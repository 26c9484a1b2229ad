// Random texts and what @huggingface/tokenizers makes of them.
//   node tokenizer_oracle.mjs TOKENIZER.json COUNT SEED TEXTS IDS
// writes COUNT lines to each of the last two: a text as a JSON string, and its ids as a JSON list.
import { readFileSync, writeFileSync } from "node:fs";
import { Tokenizer } from "@huggingface/tokenizers";

const [file, count, seed, textsFile, idsFile] = process.argv.slice(2);
const json = JSON.parse(readFileSync(file, "utf8"));
const tokenizer = new Tokenizer(json, {});

let state = BigInt(seed);
function pick(n) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number(state >> 33n) % n;
}

// Blocks that every Unicode of the last years has, what the patterns treat apart, and added tokens
// (but those of whole words, which that library finds inside words too).
const ranges = [[0x20, 0x7e], [0x20, 0x7e], [0xa1, 0x17e], [0x391, 0x3a1], [0x410, 0x44f], [0x5d0, 0x5ea], [0x627, 0x63a],
  [0x915, 0x939], [0xe01, 0xe2e], [0x3041, 0x3096], [0x4e00, 0x9fa5], [0xac00, 0xd7a3], [0x2010, 0x2027], [0x2160, 0x217f],
  [0x300, 0x314], [0x1f600, 0x1f64f], [0x20000, 0x20010]];
const words = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "'s", "'LL", "don't", "1234567", "e\u0301", "\u200d", "\ufb01",
  ...(json.added_tokens ?? []).filter((token) => !token.single_word).slice(0, 8).map((token) => token.content)];

function text() {
  const sources = Array.from({ length: 1 + pick(3) }, () => pick(ranges.length + 6));
  let out = "";
  for (let left = pick(30); left > 0; left--) {
    const source = sources[pick(sources.length)];
    const range = ranges[source];
    out += range ? String.fromCodePoint(range[0] + pick(range[1] - range[0] + 1)) : words[pick(words.length)];
  }
  return out;
}

const texts = Array.from({ length: Number(count) }, text);
writeFileSync(textsFile, texts.map((t) => JSON.stringify(t) + "\n").join(""));
writeFileSync(idsFile, texts.map((t) => JSON.stringify(tokenizer.encode(t).ids.map(Number)) + "\n").join(""));
