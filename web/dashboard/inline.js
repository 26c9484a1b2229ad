// Markdown inside a paragraph: code, emphasis, links, formulas, line breaks. One pass over the text: what a mark opens
// waits on a stack until its closing mark comes, then everything since then is wrapped. Each character is looked at a
// bounded number of times, and elements nest to a bounded depth, whatever a model writes.
import { h } from './dom.js';
import { tex } from './tex.js';

const MAX_DEPTH = 16, MAX_FORMULA = 2000;
const EMPHASIS = { '*': ['em', 'strong'], '_': ['em', 'strong'], '~': [null, 'del'] };
const PLAIN = /[^\\`*_~[\]$<h\n!]+/y;
const ADDRESS = /https?:\/\/[^\s<>"'`|\\^{}]{1,2000}/yi;
const TARGET = /\(\s*(?:<([^<>\n]{0,2000})>|([^()\s<>]{0,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,500})?))(?:\s+"[^"\n]{0,500}")?\s*\)/y;

// Only web and mail addresses become links; they open in a new tab and get no referrer.
const SAFE = /^(?:https?:\/\/|mailto:)/i;

function link(address, children) {
  return h('a', { href: address, target: '_blank', rel: 'noopener noreferrer' }, children);
}

export function formula(source, display) {
  return tex(source, display) ?? h(display ? 'pre' : 'code', { class: 'tex-source', title: 'A formula that cannot be drawn' }, source.trim());
}

// Is the text between two dollar signs a formula, and not the words between two sums of money?
function isFormula(text) {
  if (/^\s|\s$/.test(text) || text.includes('\n\n')) return false;
  if (/[\\^_{}]/.test(text)) return true;
  const run = /^\d/.test(text) ? 2 : 3;
  return !new RegExp(`\\p{L}{${run}}`, 'u').test(text);
}

// Neighbouring strings become one, so that a paragraph has few text nodes.
function joined(parts) {
  const out = [];
  let text = '';
  for (const part of parts) {
    if (typeof part === 'string') { text += part; continue; }
    if (text !== '') out.push(text);
    text = '';
    out.push(part);
  }
  if (text !== '') out.push(text);
  return out;
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.out = [];     // strings and elements; depths[i] is how deep out[i] nests
    this.depths = [];
    this.open = [];    // marks that wait for their end: {char, n, index in out}
    this.waiting = {}; // how many of them there are by character
    this.ends = {};    // where the next closing mark of formulas is, by mark
  }

  parse() {
    while (this.at < this.text.length) {
      PLAIN.lastIndex = this.at;
      if (PLAIN.test(this.text)) {
        this.push(this.text.slice(this.at, PLAIN.lastIndex));
        this.at = PLAIN.lastIndex;
      } else this.mark(this.text[this.at]);
    }
    return joined(this.out);
  }

  push(part, depth = 0) {
    this.out.push(part);
    this.depths.push(depth);
  }

  // Takes n characters and adds `part`, or the characters themselves.
  take(n, part = this.text.slice(this.at, this.at + n)) {
    this.push(part);
    this.at += n;
  }

  mark(char) {
    const { text, at } = this;
    if (char === '\n') { this.take(1, h('br')); return; }
    if (char === '\\') { this.backslash(); return; }
    if (char === '`') { this.code(); return; }
    if (char === '$') { this.dollar(); return; }
    if (char === '[' || (char === '!' && text[at + 1] === '[')) { this.wait('[', char === '!' ? 2 : 1); return; }
    if (char === ']') { this.closeLink(); return; }
    if (char === '<' || char === 'h') { this.address(char === '<' ? 1 : 0); return; }
    if (char in EMPHASIS) { this.emphasis(char); return; }
    this.take(1);
  }

  wait(char, n) {
    this.open.push({ char, n, index: this.out.length });
    this.waiting[char] = (this.waiting[char] ?? 0) + 1;
    this.take(n);
  }

  // The latest mark with this character; marks above it can no longer close and stay text. null if there is none.
  opener(char) {
    if (!this.waiting[char]) return null;
    for (;;) {
      const mark = this.open.pop();
      this.waiting[mark.char]--;
      if (mark.char === char) return mark;
    }
  }

  // Wraps all parts after `index`. When they nest too deeply already, all open marks stay text: trying each of them
  // would take time in the square of their number.
  wrap(index, make) {
    const depth = 1 + this.depths.slice(index + 1).reduce((a, b) => Math.max(a, b), 0);
    if (depth > MAX_DEPTH) {
      this.open = [];
      this.waiting = {};
      return false;
    }
    const el = make(joined(this.out.slice(index + 1)));
    this.out.length = this.depths.length = index;
    this.push(el, depth);
    return true;
  }

  emphasis(char) {
    const { text, at } = this;
    let n = 1;
    while (text[at + n] === char) n++;
    if (n > 3 || (char === '~' && n !== 2)) { this.take(n); return; }
    const before = text[at - 1] ?? ' ', after = text[at + n] ?? ' ';
    const inWord = char === '_' && /[\p{L}\p{N}]/u.test(before) && /[\p{L}\p{N}]/u.test(after);
    if (inWord) { this.take(n); return; }
    if (/\S/.test(before) && this.close(char, n)) return;
    if (/\S/.test(after) && !(char === '_' && /[\p{L}\p{N}]/u.test(before))) this.wait(char, n);
    else this.take(n);
  }

  // Closes as many of the n marks as are open; what remains of the opening mark goes on waiting.
  close(char, n) {
    const mark = this.opener(char);
    if (mark === null) return false;
    const used = Math.min(n, mark.n);
    const done = this.wrap(mark.index, (parts) => (used === 3 ? h('strong', null, h('em', null, parts))
      : h(EMPHASIS[char][used - 1], null, parts)));
    if (!done) { this.take(n); return true; }
    if (mark.n > used) {
      const inner = this.out.pop(), depth = this.depths.pop();
      this.open.push({ char, n: mark.n - used, index: this.out.length });
      this.waiting[char]++;
      this.push(char.repeat(mark.n - used));
      this.push(inner, depth);
    }
    this.at += used;
    return true;
  }

  closeLink() {
    const mark = this.opener('[');
    if (mark === null) { this.take(1); return; }
    TARGET.lastIndex = this.at + 1;
    const target = TARGET.exec(this.text), end = TARGET.lastIndex, address = target?.[1] ?? target?.[2] ?? '';
    if (SAFE.test(address) && this.wrap(mark.index, (parts) => link(address, parts))) this.at = end;
    else this.take(1);
  }

  address(bracket) {
    ADDRESS.lastIndex = this.at + bracket;
    const found = ADDRESS.exec(this.text)?.[0];
    if (found === undefined) { this.take(1); return; }
    if (bracket === 1) {
      if (this.text[ADDRESS.lastIndex] === '>') this.take(found.length + 2, link(found, [found]));
      else this.take(1);
      return;
    }
    let end = found.length; // punctuation at the end, and a bracket that was not opened, belong to the sentence
    while (end > 8 && (/[.,:;!?*_~\]]/.test(found[end - 1]) || (found[end - 1] === ')' && !found.slice(0, end - 1).includes('(')))) end--;
    this.take(end, link(found.slice(0, end), [found.slice(0, end)]));
  }

  // Where runs of backticks of each length start; found in one pass at the first backtick.
  ticks(n, after) {
    if (this.runs === undefined) {
      this.runs = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        if (!this.runs.has(run[0].length)) this.runs.set(run[0].length, { at: [], next: 0 });
        this.runs.get(run[0].length).at.push(run.index);
      }
    }
    const runs = this.runs.get(n);
    while (runs?.at[runs.next] < after) runs.next++;
    return runs?.at[runs.next] ?? -1;
  }

  code() {
    let n = 1;
    while (this.text[this.at + n] === '`') n++;
    const start = this.at + n, end = this.ticks(n, start);
    if (end < 0) { this.take(n); return; }
    const body = this.text.slice(start, end).replace(/\n/g, ' ');
    this.at = end + n;
    this.push(h('code', null, /^ .*\S.* $/.test(body) ? body.slice(1, -1) : body), 1);
  }

  // A formula from here to `close`. The place of the next closing mark is kept: many opening marks cost one search.
  formula(open, close, display, fits = () => true) {
    const start = this.at + open.length;
    if (this.ends[close] === undefined || this.ends[close] < start) {
      const found = this.text.indexOf(close, start);
      this.ends[close] = found < 0 ? Infinity : found;
    }
    const end = this.ends[close];
    if (end === start || end - start > MAX_FORMULA) return false;
    const source = this.text.slice(start, end);
    if (!fits(source, end + close.length)) return false;
    this.push(formula(source, display), 1);
    this.at = end + close.length;
    return true;
  }

  dollar() {
    const { text, at } = this;
    if (text[at + 1] === '$') { if (!this.formula('$$', '$$', true)) this.take(2); return; }
    const free = !/[\p{L}\p{N}]/u.test(text[at - 1] ?? ' ') && /\S/.test(text[at + 1] ?? ' ');
    const fits = (source, end) => isFormula(source) && !/\d/.test(text[end] ?? '') && !source.endsWith('\\');
    if (!free || !this.formula('$', '$', false, fits)) this.take(1);
  }

  backslash() {
    const after = this.text[this.at + 1] ?? '';
    if (after === '(' && this.formula('\\(', '\\)', false)) return;
    if (after === '[' && this.formula('\\[', '\\]', true)) return;
    if (/[!-/:-@[-`{-~]/.test(after)) { this.push(after); this.at += 2; } else this.take(1);
  }
}

export function inline(text) {
  return new Inline(text).parse();
}
