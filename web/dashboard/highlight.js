// Splits source code into coloured parts. One scanner for all languages: each has a list of rules, tried in order at
// the current place. Every rule is a search for a closing mark, or a sticky pattern that either takes what it has read or
// reads a bounded number of characters, so the time is linear in the text whatever it holds.
import { h } from './dom.js';

const MAX_CHARS = 200000; // longer blocks are shown without colours

const words = (text) => new Set(text.split(' '));
const sticky = (pattern) => new RegExp(pattern.source, `${pattern.flags.replace('y', '')}y`);

// A rule takes (text, at, before) and returns [kind, end], or null. `before` is the last part that was no space.
const match = (kind, pattern) => {
  const test = sticky(pattern);
  return (text, at) => {
    test.lastIndex = at;
    return test.test(text) && test.lastIndex > at ? [kind, test.lastIndex] : null;
  };
};
// From an opening to a closing mark; without the latter, to the end of the text, as while an answer is streaming.
const span = (kind, open, close) => (text, at) => {
  if (!text.startsWith(open, at)) return null;
  const end = text.indexOf(close, at + open.length);
  return [kind, end < 0 ? text.length : end + close.length];
};
const name = (keywords, types = words(''), values = words('true false null')) => {
  const test = /[A-Za-z_$\u0080-\uffff][\w$\u0080-\uffff]*/y;
  return (text, at) => {
    test.lastIndex = at;
    if (!test.test(text)) return null;
    const end = test.lastIndex, word = text.slice(at, end);
    if (keywords.has(word)) return ['keyword', end];
    if (values.has(word)) return ['value', end];
    if (types.has(word)) return ['type', end];
    return [text[end] === '(' ? 'call' : '', end];
  };
};

const NUMBER = match('number', /0[xX][\da-fA-F_']+\w*|0[bB][01_]+\w*|\d[\d_']*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?\w*/);
const DOUBLE = match('string', /"(?:[^"\\\n]|\\[^])*"?/);
const SINGLE = match('string', /'(?:[^'\\\n]|\\[^])*'?/);
const CHAR = match('string', /'(?:[^'\\\n]|\\(?:u\{[^}\n]{1,8}\}|x..|.))'/);
const BACKTICK = match('string', /`(?:[^`\\]|\\[^])*`?/);
const SLASHES = match('comment', /\/\/[^\n]*/);
const HASH = match('comment', /#[^\n]*/);
const BLOCK = span('comment', '/*', '*/');
const DASHES = match('comment', /--[^\n]*/);

// A slash starts a regular expression where a value is expected: not after a name, a number or a closing bracket.
const regexp = (text, at, before) => {
  if (text[at] !== '/' || /[\w$)\]}"'`]$/.test(before) && !/^(?:return|typeof|case|in|of)$/.test(before)) return null;
  const test = /\/(?![*/\n])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.){0,100}\]){1,200}\/[a-z]*/y;
  test.lastIndex = at;
  return test.test(text) ? ['string', test.lastIndex] : null;
};
const atLineStart = (rule) => (text, at, before) => {
  let i = at - 1;
  while (i >= 0 && at - i < 80 && (text[i] === ' ' || text[i] === '\t')) i--;
  return i < 0 || text[i] === '\n' ? rule(text, at, before) : null;
};

const shellComment = (text, at) => (at === 0 || /[\s;]/.test(text[at - 1]) ? HASH(text, at) : null);

const C_WORDS = 'auto break case const continue default do else enum extern for goto if inline register restrict return sizeof static ' +
  'struct switch typedef union volatile while _Atomic _Generic _Static_assert _Noreturn _Thread_local';
const C_TYPES = 'bool char double float int long short signed unsigned void size_t ssize_t ptrdiff_t int8_t int16_t int32_t int64_t ' +
  'uint8_t uint16_t uint32_t uint64_t uintptr_t intptr_t FILE';
const C_BASE = [SLASHES, BLOCK, atLineStart(match('meta', /#[ \t]*\w+(?:[ \t]*<[^>\n]*>)?/)), DOUBLE, CHAR, NUMBER];
const CPP_WORDS = `${C_WORDS} alignas alignof catch class concept consteval constexpr constinit co_await co_return co_yield decltype delete ` +
  'explicit export final friend mutable namespace new noexcept operator override private protected public requires static_assert ' +
  'static_cast dynamic_cast reinterpret_cast const_cast template this throw try typename using virtual';
const CPP_TYPES = `${C_TYPES} string string_view vector map set unordered_map unordered_set pair tuple optional variant array unique_ptr ` +
  'shared_ptr wchar_t char8_t char16_t char32_t';
const JS_WORDS = 'as async await break case catch class const continue debugger default delete do else export extends finally for from ' +
  'function get if import in instanceof let new of return set static super switch this throw try typeof var void while with yield ' +
  'abstract declare enum implements interface keyof namespace private protected public readonly satisfies type';
const JS_TYPES = 'Array Boolean Date Error Map Number Object Promise RegExp Set String Symbol any bigint boolean never number object ' +
  'string symbol unknown';
const PY_WORDS = 'and as assert async await break case class continue def del elif else except finally for from global if import in is ' +
  'lambda match nonlocal not or pass raise return try while with yield';
const PY_TYPES = 'bool bytes dict float frozenset int list object set str tuple type self cls';
const GO_WORDS = 'break case chan const continue default defer else fallthrough for func go goto if import interface map package range ' +
  'return select struct switch type var';
const GO_TYPES = 'any bool byte complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 ' +
  'uint32 uint64 uintptr';
const RUST_WORDS = 'as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref ' +
  'return static struct super trait type union unsafe use where while';
const RUST_TYPES = 'Self self bool char str String Vec Option Result Box Rc Arc HashMap i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 ' +
  'usize f32 f64';
const SHELL_WORDS = 'case do done elif else esac export fi for function if in local readonly return select set shift source then trap ' +
  'unset until while exit alias cd echo printf sudo';
const SQL_WORDS = 'add all alter and as asc begin between by case cascade check column commit constraint create cross default delete desc ' +
  'distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null ' +
  'offset on or order outer primary references returning right rollback select set table then transaction union unique update using ' +
  'values view when where with';
const SQL_TYPES = 'bigint blob boolean bytea char date decimal float int integer json jsonb numeric real serial smallint text time ' +
  'timestamp uuid varchar';

// SQL is written in either case.
const either = (text) => words(`${text} ${text.toUpperCase()}`);
const KEY = match('key', /"(?:[^"\\\n]|\\.)*"(?=[ \t]*:)/);

const LANGUAGES = {
  c: [...C_BASE, name(words(C_WORDS), words(C_TYPES), words('true false NULL nullptr'))],
  cpp: [...C_BASE, name(words(CPP_WORDS), words(CPP_TYPES), words('true false NULL nullptr'))],
  js: [SLASHES, BLOCK, DOUBLE, SINGLE, BACKTICK, regexp, match('meta', /@\w+/), NUMBER,
    name(words(JS_WORDS), words(JS_TYPES), words('true false null undefined NaN Infinity'))],
  python: [HASH, span('string', '"""', '"""'), span('string', "'''", "'''"), match('meta', /@[\w.]+/),
    match('string', /[rbfuRBFU]{1,2}(?="(?!"")|'(?!''))/), DOUBLE, SINGLE, NUMBER,
    name(words(PY_WORDS), words(PY_TYPES), words('True False None'))],
  go: [SLASHES, BLOCK, DOUBLE, span('string', '`', '`'), CHAR, NUMBER,
    name(words(GO_WORDS), words(GO_TYPES), words('true false nil iota'))],
  rust: [SLASHES, BLOCK, match('meta', /#!?\[[^\]\n]{0,500}\]/), DOUBLE, CHAR, match('type', /'\w+/), match('call', /[a-z_]\w*!(?!=)/), NUMBER,
    name(words(RUST_WORDS), words(RUST_TYPES), words('true false None Some Ok Err'))],
  shell: [shellComment, match('string', /"(?:[^"\\]|\\[^])*"?/), match('string', /'[^']*'?/),
    match('type', /\$(?:\w+|\{[^}\n]{0,200}\}|[#@*?!$-])/), match('meta', /--?[A-Za-z][\w-]*/), match('number', /\d+/),
    name(words(SHELL_WORDS), words(''), words('true false'))],
  json: [SLASHES, BLOCK, KEY, DOUBLE, match('number', /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/), name(words(''))],
  yaml: [HASH, atLineStart(match('meta', /---|\.\.\./)), KEY, match('key', /[\w./-]{1,100}(?=:(?:[ \t\n]|$))/), DOUBLE,
    match('string', /'[^'\n]*'?/), match('type', /[&*!][\w-]+/), match('number', /-?\d+(?:\.\d+)?\b/),
    name(words(''), words(''), words('true false null yes no on off'))],
  html: [span('comment', '<!--', '-->'), match('meta', /<![^>\n]*>?/), match('keyword', /<\/?[A-Za-z][\w:-]*|\/?>/),
    match('key', /[A-Za-z_:@][\w:.-]*(?=\s?=\s?["'])/), match('string', /"[^"<]*"|'[^'<]*'/), match('value', /&#?\w+;/),
    match('', /[\w:.-]+/)],
  css: [BLOCK, DOUBLE, SINGLE, match('meta', /@[\w-]+/), match('value', /#[\da-fA-F]{3,8}\b/), match('keyword', /[.#][A-Za-z_][\w-]*/),
    match('key', /[A-Za-z-]+(?=:[ \t])|--[\w-]+/), match('number', /-?(?:\d*\.)?\d+(?:%|[a-z]+)?/), match('call', /[\w-]+(?=\()/),
    match('', /[\w-]+/)],
  sql: [DASHES, BLOCK, match('string', /'(?:[^']|'')*'?/), match('key', /"[^"\n]*"/), NUMBER,
    name(either(SQL_WORDS), either(SQL_TYPES), either('true false'))],
  diff: [match('meta', /(?:diff |index |\+\+\+ |--- |@@ )[^\n]*/), match('added', /\+[^\n]*/), match('removed', /-[^\n]*/),
    match('', /[^\n]+/)],
};
const ALIASES = {
  h: 'c', 'c++': 'cpp', cc: 'cpp', cxx: 'cpp', hpp: 'cpp', cuda: 'cpp', cu: 'cpp', javascript: 'js', mjs: 'js', cjs: 'js', jsx: 'js',
  ts: 'js', tsx: 'js', typescript: 'js', java: 'js', py: 'python', python3: 'python', golang: 'go', rs: 'rust', sh: 'shell', bash: 'shell',
  zsh: 'shell', console: 'shell', shellsession: 'shell', dockerfile: 'shell', makefile: 'shell', jsonc: 'json', json5: 'json',
  jsonl: 'json', yml: 'yaml', toml: 'yaml', ini: 'yaml', xml: 'html', svg: 'html', htm: 'html', scss: 'css', less: 'css', sqlite: 'sql',
  postgresql: 'sql', mysql: 'sql', patch: 'diff',
};

// The parts of a text as [kind, text]; neighbours of the same kind are joined.
export function parts(text, language) {
  const key = String(language ?? '').toLowerCase(), known = Object.hasOwn(ALIASES, key) ? ALIASES[key] : key;
  const rules = Object.hasOwn(LANGUAGES, known) ? LANGUAGES[known] : undefined;
  if (rules === undefined || text.length > MAX_CHARS) return [['', text]];
  const out = [];
  let before = '';
  for (let at = 0; at < text.length;) {
    const [kind, end] = next(rules, text, at, before), part = text.slice(at, end);
    if (part.trim() !== '') before = part.length < 20 ? part : part.slice(-20);
    if (out.length > 0 && out.at(-1)[0] === kind) out.at(-1)[1] += part;
    else out.push([kind, part]);
    at = end;
  }
  return out;
}

function next(rules, text, at, before) {
  for (const rule of rules) {
    const found = rule(text, at, before);
    if (found !== null) return found;
  }
  return ['', at + 1];
}

export function highlight(text, language) {
  return parts(text, language).map(([kind, part]) => (kind === '' ? part : h('span', { class: `hl-${kind}` }, part)));
}
