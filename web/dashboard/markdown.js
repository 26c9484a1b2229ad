// Renders Markdown as models write it into elements: headings, lists, quotes, tables, rules, code, emphasis, links.
// Text never becomes markup; what is not recognised stays text.
import { h, copyButton } from './dom.js';

const INLINE = [
  [/^`([^`\n]+)`/, (m) => h('code', null, m[1])],
  [/^\*\*(?=\S)([^\n]+?)\*\*/, (m) => h('strong', null, inline(m[1]))],
  [/^__(?=\S)([^\n]+?)__(?!\w)/, (m) => h('strong', null, inline(m[1]))],
  [/^~~(?=\S)([^\n]+?)~~/, (m) => h('del', null, inline(m[1]))],
  [/^\*(?=[^\s*])([^*\n]+?)\*/, (m) => h('em', null, inline(m[1]))],
  [/^_(?=[^\s_])([^_\n]+?)_(?!\w)/, (m) => h('em', null, inline(m[1]))],
  [/^\[([^\]\n]+)\]\(([^()\s]+)\)/, (m) => link(m[2], inline(m[1])) ?? m[0]],
  [/^https?:\/\/[^\s<>"')\]]+[^\s<>"')\].,:;!?]/, (m) => link(m[0], [m[0]])],
];
const STARTS = /[`*_~[]|https?:/;

// Only http and https addresses become links; they open in a new tab and get no referrer.
function link(address, children) {
  if (!/^https?:\/\//i.test(address)) return null;
  return h('a', { href: address, target: '_blank', rel: 'noopener noreferrer' }, children);
}

function inline(text) {
  const out = [];
  let plain = '';
  const keep = () => { if (plain !== '') out.push(plain); plain = ''; };
  while (text !== '') {
    const at = text.search(STARTS);
    if (at < 0) { plain += text; break; }
    const before = at === 0 ? plain.at(-1) : text[at - 1];
    plain += text.slice(0, at);
    text = text.slice(at);
    const inWord = text[0] === '_' && /\w/.test(before ?? '');
    const rule = inWord ? undefined : INLINE.find(([pattern]) => pattern.test(text));
    const match = rule?.[0].exec(text);
    if (match) { keep(); out.push(rule[1](match)); text = text.slice(match[0].length); }
    else { plain += text[0]; text = text.slice(1); }
  }
  keep();
  return out;
}

export function codeBlock(text, language) {
  return h('div', { class: 'code' },
    h('div', { class: 'code-head' }, h('span', null, language || 'text'), copyButton(text)),
    h('pre', { tabindex: 0 }, h('code', null, text)));
}

function lines(texts) {
  return texts.flatMap((text, i) => (i === 0 ? inline(text) : [h('br'), ...inline(text)]));
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/;
const cellsOf = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());

class Reader {
  constructor(text) {
    this.rows = text.replace(/\r\n?/g, '\n').split('\n');
    this.at = 0;
  }

  get row() { return this.rows[this.at]; }

  blocks(depth = 0) {
    const out = [];
    while (this.at < this.rows.length) {
      if (this.row.trim() === '') { this.at++; continue; }
      out.push(this.fence() ?? this.heading() ?? this.rule() ?? this.quote(depth) ?? this.table() ??
        this.list(depth) ?? this.paragraph());
    }
    return out;
  }

  fence() {
    const open = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(this.row);
    if (open === null) return null;
    const body = [];
    for (this.at++; this.at < this.rows.length && !this.row.trim().startsWith(open[1]); this.at++) body.push(this.row);
    this.at++;
    return codeBlock(body.join('\n'), open[2]);
  }

  heading() {
    const m = /^(#{1,6})\s+(.*?)\s*#*$/.exec(this.row);
    if (m === null) return null;
    this.at++;
    return h(`h${Math.min(6, m[1].length + 2)}`, null, inline(m[2]));
  }

  rule() {
    if (!/^\s*([-*_])(\s*\1){2,}\s*$/.test(this.row)) return null;
    this.at++;
    return h('hr');
  }

  quote(depth) {
    if (!/^\s*>/.test(this.row) || depth > 8) return null;
    const body = [];
    for (; this.at < this.rows.length && /^\s*>/.test(this.row); this.at++) body.push(this.row.replace(/^\s*> ?/, ''));
    return h('blockquote', null, new Reader(body.join('\n')).blocks(depth + 1));
  }

  table() {
    if (!this.row.includes('|') || !TABLE_RULE.test(this.rows[this.at + 1] ?? '')) return null;
    const head = cellsOf(this.row), body = [];
    for (this.at += 2; this.at < this.rows.length && this.row.includes('|'); this.at++) body.push(cellsOf(this.row));
    return h('div', { class: 'scroll' }, h('table', null,
      h('thead', null, h('tr', null, head.map((cell) => h('th', null, inline(cell))))),
      h('tbody', null, body.map((cells) => h('tr', null, head.map((_, i) => h('td', null, inline(cells[i] ?? ''))))))));
  }

  // Lines with a deeper indent belong to the item above.
  list(depth) {
    const first = ITEM.exec(this.row);
    if (first === null || depth > 8) return null;
    const ordered = /\d/.test(first[2]), items = [];
    for (let m; this.at < this.rows.length && (m = ITEM.exec(this.row)) !== null && /\d/.test(m[2]) === ordered;) {
      const inner = m[1].length + m[2].length + 1, body = [m[3]];
      for (this.at++; this.at < this.rows.length; this.at++) {
        const deep = /^\s*/.exec(this.row)[0].length > m[1].length;
        if (this.row.trim() === '' ? !/^\s{2,}\S/.test(this.rows[this.at + 1] ?? '') : !deep) break;
        body.push(this.row.slice(Math.min(inner, /^\s*/.exec(this.row)[0].length)));
      }
      items.push(h('li', null, new Reader(body.join('\n')).blocks(depth + 1)));
      while (this.at < this.rows.length && this.row.trim() === '' && ITEM.test(this.rows[this.at + 1] ?? '')) this.at++;
    }
    return h(ordered ? 'ol' : 'ul', ordered ? { start: parseInt(first[2], 10) } : null, items);
  }

  paragraph() {
    const body = [this.row.trim()];
    const stops = /^\s*(#{1,6}\s|>|```|~~~)|^(\s*)([-*+]|\d{1,9}[.)])\s+/;
    for (this.at++; this.at < this.rows.length && this.row.trim() !== '' && !stops.test(this.row); this.at++)
      body.push(this.row.trim());
    return h('p', null, lines(body));
  }
}

export function markdown(text) {
  return new Reader(text).blocks();
}
