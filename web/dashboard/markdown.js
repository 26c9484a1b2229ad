// Renders Markdown as models write it into elements: headings, lists, quotes, tables, rules, code, formulas, and in them
// what inline.js knows. Text never becomes markup; what is not recognised stays text.
import { h } from './dom.js';
import { codeBlock } from './code.js';
import { formula, inline } from './inline.js';

const MAX_DEPTH = 8, MAX_COLUMNS = 64, MAX_RULE = 4000, MAX_FORMULA_ROWS = 100;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/;
const STOPS = /^\s*(#{1,6}\s|>|```|~~~|\$\$|\\\[)|^(\s*)([-*+]|\d{1,9}[.)])\s+/;
const MATH = { $$: '$$', '\\[': '\\]' };

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
const alignOf = (cell) => (/^:-+:$/.test(cell) ? 'center' : /-:$/.test(cell) ? 'end' : null);
const indentOf = (line) => line.length - line.trimStart().length;

class Reader {
  constructor(rows, depth = 0) {
    this.rows = rows;
    this.depth = depth;
    this.at = 0;
    this.unclosed = { $$: 0, '\\[': 0 }; // up to which row a search for the end of a formula has found none
  }

  get row() { return this.rows[this.at]; }

  get more() { return this.at < this.rows.length; }

  // The next block, or null at the end.
  block() {
    while (this.more && this.row.trim() === '') this.at++;
    if (!this.more) return null;
    this.start = this.at;
    return this.fence() ?? this.math() ?? this.heading() ?? this.rule() ?? this.quote() ?? this.table() ?? this.list() ?? this.paragraph();
  }

  blocks() {
    const out = [];
    for (let el; (el = this.block()) !== null;) out.push(el);
    return out;
  }

  inner(rows) { return new Reader(rows, this.depth + 1).blocks(); }

  // A block of code without its end goes on to the end of the text, as it does while an answer is streaming.
  fence() {
    const open = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(this.row);
    if (open === null || (open[1][0] === '`' && this.row.trim().slice(open[1].length).includes('`'))) return null;
    const body = [], indent = indentOf(this.row);
    const ends = () => this.row.trim().startsWith(open[1]) && /^(?:`+|~+)$/.test(this.row.trim().slice(0, 200));
    for (this.at++; this.more && !ends(); this.at++) body.push(this.row.slice(Math.min(indent, indentOf(this.row))));
    this.at++;
    const text = body.join('\n');
    return open[2] === 'math' || open[2] === 'latex' ? formula(text, true) : codeBlock(text, open[2]);
  }

  // A formula on lines of its own, up to its end or an empty line.
  math() {
    const first = this.row.trim(), open = Object.keys(MATH).find((mark) => first.startsWith(mark));
    if (open === undefined || this.at < this.unclosed[open]) return null;
    const body = [];
    const stop = Math.min(this.rows.length, this.at + MAX_FORMULA_ROWS);
    for (let i = this.at; i < stop && this.rows[i].trim() !== ''; i++) {
      const row = i === this.at ? first.slice(2) : this.rows[i], end = row.indexOf(MATH[open]);
      if (end >= 0 && row.slice(end + 2).trim() !== '' && !/^[.,;]$/.test(row.slice(end + 2).trim())) return null;
      body.push(end < 0 ? row : row.slice(0, end));
      if (end < 0) continue;
      this.at = i + 1;
      return h('div', { class: 'formula' }, formula(body.join('\n'), true));
    }
    this.unclosed[open] = this.at + body.length;
    return null;
  }

  heading() {
    const m = /^\s{0,3}(#{1,6})\s+/.exec(this.row);
    if (m === null) return null;
    let text = this.row.slice(m[0].length).trimEnd(), end = text.length;
    while (text[end - 1] === '#') end--;
    if (end === 0 || text[end - 1] === ' ') text = text.slice(0, end).trimEnd();
    this.at++;
    return h(`h${Math.min(6, m[1].length + 2)}`, null, inline(text));
  }

  rule() {
    if (this.row.length > 200 || !/^\s*([-*_])(\s*\1){2,}\s*$/.test(this.row)) return null;
    this.at++;
    return h('hr');
  }

  quote() {
    if (!/^\s*>/.test(this.row) || this.depth > MAX_DEPTH) return null;
    const body = [];
    for (; this.more && /^\s*>/.test(this.row); this.at++) body.push(this.row.replace(/^\s*> ?/, ''));
    return h('blockquote', null, this.inner(body));
  }

  table() {
    const rule = this.rows[this.at + 1] ?? '';
    if (!this.row.includes('|') || rule.length > MAX_RULE || !TABLE_RULE.test(rule)) return null;
    const head = cellsOf(this.row).slice(0, MAX_COLUMNS), align = cellsOf(rule).map(alignOf), body = [];
    for (this.at += 2; this.more && this.row.includes('|'); this.at++) body.push(cellsOf(this.row));
    const cell = (tag, text, i) => h(tag, { class: align[i] ? `to-${align[i]}` : null }, inline(text ?? ''));
    return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table' }, h('table', null,
      h('thead', null, h('tr', null, head.map((text, i) => cell('th', text, i)))),
      h('tbody', null, body.map((cells) => h('tr', null, head.map((_, i) => cell('td', cells[i], i)))))));
  }

  // Lines with a deeper indent belong to the item above.
  list() {
    const first = ITEM.exec(this.row);
    if (first === null || this.depth > MAX_DEPTH) return null;
    const ordered = /\d/.test(first[2]), items = [];
    for (let m; this.more && (m = ITEM.exec(this.row)) !== null && /\d/.test(m[2]) === ordered;) {
      items.push(this.item(m));
      while (this.more && this.row.trim() === '' && ITEM.test(this.rows[this.at + 1] ?? '')) this.at++;
    }
    return h(ordered ? 'ol' : 'ul', ordered ? { start: parseInt(first[2], 10) } : null, items);
  }

  item(m) {
    const inner = m[1].length + m[2].length + 1, body = [m[3]];
    for (this.at++; this.more; this.at++) {
      const deep = indentOf(this.row) > m[1].length;
      if (this.row.trim() === '' ? !/^\s{2,}\S/.test(this.rows[this.at + 1] ?? '') : !deep) break;
      body.push(this.row.slice(Math.min(inner, indentOf(this.row))));
    }
    const done = /^\[([ xX])\] /.exec(body[0]);
    if (done === null) return h('li', null, this.inner(body));
    body[0] = body[0].slice(4);
    return h('li', { class: 'task' }, h('span', { role: 'img', 'aria-label': done[1] === ' ' ? 'open' : 'done' }, done[1] === ' ' ? '☐' : '☑'),
      this.inner(body));
  }

  paragraph() {
    const body = [this.row.trim()];
    for (this.at++; this.more && this.row.trim() !== '' && !STOPS.test(this.row); this.at++) body.push(this.row.trim());
    return h('p', null, inline(body.join('\n')));
  }
}

export function markdown(text) {
  return new Reader(text.replace(/\r\n?/g, '\n').split('\n')).blocks();
}

// Markdown that grows. Only the last two blocks can change when text is added (after a list, a lone "-" is a paragraph
// until its item comes), so all others stay as they are: drawing costs as much as those two, and a selection in the text
// above them survives.
export class Prose {
  constructor() {
    this.el = h('div', { class: 'prose' });
    this.clear();
  }

  clear() {
    this.text = '';
    this.starts = []; // where the last two blocks start
    this.el.replaceChildren();
  }

  update(source) {
    const text = source.replace(/\r\n?/g, '\n');
    if (text === this.text) return;
    if (!text.startsWith(this.text)) this.clear();
    for (let n = this.starts.length; n > 0; n--) this.el.lastElementChild.remove();
    this.text = text;
    this.add(this.starts[0] ?? 0);
  }

  // Adds the blocks of the text from `offset` on.
  add(offset) {
    const reader = new Reader(this.text.slice(offset).split('\n'));
    let row = 0, place = offset;
    this.starts = [];
    for (let el; (el = reader.block()) !== null;) {
      for (; row < reader.start; row++) place += reader.rows[row].length + 1;
      this.starts = [...this.starts.slice(-1), place];
      this.el.append(el);
    }
  }
}
