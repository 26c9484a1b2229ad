// Turns formulas in a subset of TeX into MathML. What is not understood is not guessed at: tex() returns null, and the
// caller shows the source. Length and depth are bounded, for the source comes from a model.
import { mathml as m } from './dom.js';

const MAX_CHARS = 8000, MAX_DEPTH = 30, MAX_CELLS = 2000;

class NotUnderstood extends Error {}
const fail = (why) => { throw new NotUnderstood(why); };

// 'name char name char …' as a table
const table = (text) => {
  const out = Object.create(null), list = text.trim().split(/\s+/);
  for (let i = 0; i < list.length; i += 2) out[list[i]] = list[i + 1];
  return out;
};

const IDENTIFIERS = table(`alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ
  nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω infty ∞ partial ∂
  nabla ∇ ell ℓ hbar ℏ emptyset ∅ varnothing ∅ aleph ℵ imath ı jmath ȷ wp ℘ Re ℜ Im ℑ angle ∠ top ⊤ bot ⊥ degree ° prime ′`);
const UPRIGHT = table(`Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω`);
const OPERATORS = table(`pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ star ⋆ circ ∘ bullet • oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ wedge ∧ land ∧ vee ∨
  lor ∨ cap ∩ cup ∪ setminus ∖ backslash ∖ le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ equiv ≡ approx ≈ sim ∼ simeq ≃ cong ≅
  propto ∝ ll ≪ gg ≫ prec ≺ succ ≻ in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ mid ∣ nmid ∤ parallel ∥ perp ⊥
  models ⊨ vdash ⊢ to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ implies ⟹ Leftarrow ⇐ impliedby ⟸ Leftrightarrow ⇔
  iff ⟺ mapsto ↦ longrightarrow ⟶ longleftarrow ⟵ longmapsto ⟼ hookrightarrow ↪ uparrow ↑ downarrow ↓ updownarrow ↕ nearrow ↗ searrow ↘
  rightharpoonup ⇀ leadsto ⇝ forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ therefore ∴ because ∵ dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ dotsc …
  dotsb ⋯ colon : coloneqq ≔ triangleq ≜ triangle △ square □ Box □ blacksquare ■ checkmark ✓ dagger † ddagger ‡ lt < gt > surd √ complement ∁
  bowtie ⋈ asymp ≍ doteq ≐ lesssim ≲ gtrsim ≳ sqcup ⊔ sqcap ⊓ rightleftharpoons ⇌ vert | Vert ‖ langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋
  lceil ⌈ rceil ⌉ lvert | rvert | lVert ‖ rVert ‖ lbrace { rbrace } lbrack [ rbrack ] { { } } | ‖ % % $ $ & & # # _ _`);
const BIG = table(`sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀ bigsqcup ⨆`);
const INTEGRALS = table(`int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯`);
const FUNCTIONS = new Set(`sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp dim ker hom deg arg`.split(' '));
const LIMITED = new Set(`lim limsup liminf max min sup inf argmax argmin det gcd Pr`.split(' '));
const ACCENTS = table(`hat ^ bar ¯ vec → dot ˙ ddot ¨ tilde ~ check ˇ breve ˘ acute ´ grave \` mathring ˚`);
const STRETCHED = { overline: '¯', widehat: '^', widetilde: '~', overrightarrow: '→', overleftarrow: '←', overbrace: '⏞' };
const UNDER = { underline: '_', underbrace: '⏟' };
const SPACES = { ',': '.167em', ':': '.222em', '>': '.222em', ';': '.278em', '!': '-.167em', ' ': '.25em', quad: '1em', qquad: '2em',
  enspace: '.5em', thinspace: '.167em' };
const SIZES = { big: '1.2em', Big: '1.8em', bigg: '2.4em', Bigg: '3em' };
const DROPPED = new Set(['nonumber', 'notag', 'hline', 'limits', 'nolimits', 'allowbreak', 'strut']);
const TEXTS = new Set(['text', 'textrm', 'textbf', 'textit', 'texttt', 'textsf', 'mbox', 'textnormal']);
const FENCES = { matrix: ['', ''], smallmatrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'],
  Vmatrix: ['‖', '‖'], cases: ['{', ''], rcases: ['', '}'], array: ['', ''], aligned: ['', ''], align: ['', ''], alignedat: ['', ''],
  split: ['', ''], gathered: ['', ''], gather: ['', ''], equation: ['', ''], multline: ['', ''], eqnarray: ['', ''] };
const ALIGNED = new Set(['aligned', 'align', 'alignedat', 'split', 'eqnarray']);

// Letters in other alphabets are characters of their own: where A and a are, and the exceptions that came earlier.
const ALPHABETS = {
  mathbb: [0x1d538, 0x1d552, 0x1d7d8, table('C ℂ H ℍ N ℕ P ℙ Q ℚ R ℝ Z ℤ')],
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce, {}],
  mathcal: [0x1d49c, 0x1d4b6, 0, table('B ℬ E ℰ F ℱ H ℋ I ℐ L ℒ M ℳ R ℛ e ℯ g ℊ o ℴ')],
  mathfrak: [0x1d504, 0x1d51e, 0, table('C ℭ H ℌ I ℑ R ℜ Z ℨ')],
  mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2, {}],
  mathtt: [0x1d670, 0x1d68a, 0x1d7f6, {}],
};
Object.assign(ALPHABETS, { boldsymbol: ALPHABETS.mathbf, bm: ALPHABETS.mathbf, bold: ALPHABETS.mathbf, Bbb: ALPHABETS.mathbb,
  mathscr: ALPHABETS.mathcal });

function inAlphabet(text, [upper, lower, digit, exceptions]) {
  return text.replace(/[A-Za-z0-9]/g, (c) => {
    if (exceptions[c] !== undefined) return exceptions[c];
    const base = c <= '9' ? digit : c <= 'Z' ? upper : lower;
    return base === 0 ? c : String.fromCodePoint(base + c.charCodeAt(0) - (c <= '9' ? 48 : c <= 'Z' ? 65 : 97));
  });
}

const row = (nodes) => (nodes.length === 1 ? nodes[0] : m('mrow', null, nodes));
const fence = (char, props) => m('mo', { fence: 'true', ...props }, char);
const word = (text, props) => m('mi', { mathvariant: 'normal', ...props }, text);

class Parser {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.depth = 0;
    this.cells = 0;
  }

  // The next token: a command with its backslash, or one character. undefined at the end.
  peek() {
    const space = /(?:\s|\\[ \t]*\n)*/y;
    space.lastIndex = this.at;
    space.test(this.source);
    this.at = space.lastIndex;
    const token = /\\(?:[A-Za-z]+\*?|[^])|[^]/uy;
    token.lastIndex = this.at;
    return token.exec(this.source)?.[0];
  }

  next() {
    const token = this.peek() ?? fail('the formula ends too early');
    this.at += token.length;
    return token;
  }

  expect(token) { if (this.next() !== token) fail(`no ${token}`); }

  nodes(...ends) {
    const out = [];
    if (++this.depth > MAX_DEPTH) fail('too deep');
    for (let t; !ends.includes(t = this.peek());) {
      if (t === undefined) fail(`no ${ends[0]}`);
      if (/^\\(?:display|text|script)style$/.test(t)) {
        this.next();
        out.push(m('mstyle', { displaystyle: String(t === '\\displaystyle') }, this.nodes(...ends)));
      } else out.push(this.scripted());
    }
    this.depth--;
    return out;
  }

  group() {
    this.expect('{');
    const inner = this.nodes('}');
    this.next();
    return row(inner);
  }

  // {…} or one token; of a number only its first digit, as in TeX.
  argument() {
    const t = this.peek();
    if (t === '{') return this.group();
    if (/^\d$/.test(t ?? '')) return m('mn', null, this.next());
    return this.atom();
  }

  // {…} as it stands
  raw() {
    this.expect('{');
    const start = this.at;
    for (let open = 1; open > 0; this.at++) {
      if (this.at >= this.source.length) fail('no }');
      const c = this.source[this.at];
      if (c === '\\') this.at++;
      else if (c === '{') open++;
      else if (c === '}') open--;
    }
    return this.source.slice(start, this.at - 1);
  }

  option() {
    if (this.peek() !== '[') return undefined;
    this.next();
    const inner = this.nodes(']');
    this.next();
    return row(inner);
  }

  scripted() {
    const t = this.peek();
    const base = t === '^' || t === '_' || t === "'" ? m('mrow') : this.atom();
    let sub, sup, over = base.limits === true, primes = '';
    for (;;) {
      const mark = this.peek();
      if (mark === '\\limits' || mark === '\\nolimits') { this.next(); over = mark === '\\limits'; }
      else if (mark === "'") { this.next(); primes += '′'; }
      else if (mark === '_' && sub === undefined) { this.next(); sub = this.argument(); }
      else if (mark === '^' && sup === undefined) { this.next(); sup = this.argument(); }
      else if (mark === '_' || mark === '^') fail('two of a script');
      else break;
    }
    if (primes !== '') sup = row([m('mo', null, primes), sup].filter(Boolean));
    if (sub !== undefined && sup !== undefined) return m(over ? 'munderover' : 'msubsup', null, base, sub, sup);
    if (sub !== undefined) return m(over ? 'munder' : 'msub', null, base, sub);
    if (sup !== undefined) return m(over ? 'mover' : 'msup', null, base, sup);
    return base;
  }

  atom() {
    const t = this.peek();
    if (t === '{') return this.group();
    if (/^\d$/.test(t ?? '')) {
      const number = /\d+(?:\.\d+)?/y;
      number.lastIndex = this.at;
      const text = number.exec(this.source)[0];
      this.at += text.length;
      return m('mn', null, text);
    }
    this.next();
    if (t[0] === '\\') return this.command(t.slice(1).replace(/^([A-Za-z]+)\*$/, '$1'));
    if (t === '~') return m('mspace', { width: '.25em' });
    if (t === '}' || t === '&' || t === '$' || t === '^' || t === '_') fail(`${t} in the wrong place`);
    if (/\p{L}/u.test(t)) return m('mi', null, t);
    if ('()[]|'.includes(t)) return m('mo', { stretchy: 'false' }, t);
    return m('mo', null, { '-': '−', '*': '∗', '`': '‘' }[t] ?? t);
  }

  command(name) {
    const own = (list) => Object.hasOwn(list, name);
    if (name in IDENTIFIERS) return m('mi', null, IDENTIFIERS[name]);
    if (name in UPRIGHT) return word(UPRIGHT[name]);
    if (name in OPERATORS) return m('mo', { stretchy: 'false' }, OPERATORS[name]);
    if (name in BIG) return Object.assign(m('mo', { movablelimits: 'true' }, BIG[name]), { limits: true });
    if (name in INTEGRALS) return m('mo', null, INTEGRALS[name]);
    if (FUNCTIONS.has(name)) return this.named(name, false);
    if (LIMITED.has(name)) return this.named(name, true);
    if (name in ACCENTS) return m('mover', { accent: 'true' }, this.argument(), m('mo', { stretchy: 'false' }, ACCENTS[name]));
    if (own(STRETCHED)) return Object.assign(m('mover', { accent: 'true' }, this.argument(), m('mo', { stretchy: 'true' }, STRETCHED[name])),
      { limits: name === 'overbrace' });
    if (own(UNDER)) return Object.assign(m('munder', { accentunder: 'true' }, this.argument(), m('mo', { stretchy: 'true' }, UNDER[name])),
      { limits: name === 'underbrace' });
    if (own(SPACES)) return m('mspace', { width: SPACES[name] });
    if (own(ALPHABETS)) return this.lettered(ALPHABETS[name]);
    if (TEXTS.has(name)) return this.text(name);
    if (DROPPED.has(name)) return m('mrow');
    const size = /^(big|Big|bigg|Bigg)[lrm]?$/.exec(name);
    if (size !== null) return m('mo', { stretchy: 'true', symmetric: 'true', minsize: SIZES[size[1]], maxsize: SIZES[size[1]] }, this.delimiter());
    if (Object.hasOwn(BUILT, name)) return BUILT[name](this);
    return fail(`\\${name}`);
  }

  // A function's name, with a space before what follows unless that is a bracket.
  named(name, limits) {
    const text = { limsup: 'lim sup', liminf: 'lim inf', argmax: 'arg max', argmin: 'arg min' }[name] ?? name;
    return limits ? Object.assign(m('mo', { movablelimits: 'true', lspace: '0', rspace: '.167em' }, text), { limits: true })
      : m('mo', { lspace: '0', rspace: /^[([{^_]/.test(this.peek() ?? '(') ? '0' : '.167em' }, text);
  }

  lettered(alphabet) {
    const node = this.argument();
    for (const leaf of node.childElementCount === 0 ? [node] : node.querySelectorAll('mi, mn')) {
      leaf.textContent = inAlphabet(leaf.textContent, alphabet);
      if (leaf.localName === 'mi') leaf.setAttribute('mathvariant', 'normal');
    }
    return node;
  }

  text(name) {
    const raw = this.raw();
    if (/\\[A-Za-z]/.test(raw)) fail('a command in a text');
    const props = { textbf: { class: 'bold' }, textit: { class: 'italic' }, texttt: { class: 'mono' } }[name];
    return m('mtext', props, raw.replace(/\$|\\(?=[^A-Za-z])/g, '').replace(/^\s+|\s+$/g, '\u00a0'));
  }

  delimiter() {
    const t = this.next();
    if (t === '.') return '';
    if (t === '<' || t === '>') return t === '<' ? '⟨' : '⟩';
    if ('()[]|/'.includes(t)) return t;
    const name = t.slice(1);
    if (t[0] === '\\' && name in OPERATORS && '|‖⟨⟩⌊⌋⌈⌉{}[]∖↑↓↕'.includes(OPERATORS[name])) return OPERATORS[name];
    return fail(`${t} is no delimiter`);
  }

  left() {
    const tall = { stretchy: 'true', symmetric: 'true' };
    const out = [fence(this.delimiter(), tall)];
    for (;;) {
      out.push(...this.nodes('\\right', '\\middle'));
      const right = this.next() === '\\right';
      out.push(fence(this.delimiter(), tall));
      if (right) return m('mrow', null, out);
    }
  }

  // Rows of cells up to `end`, which is not taken; undefined is the end of the formula.
  rows(end) {
    const out = [[]];
    for (;;) {
      out.at(-1).push(m('mtd', null, this.nodes('&', '\\\\', '\\cr', end)));
      if (++this.cells > MAX_CELLS) fail('too large');
      const t = this.peek();
      if (t === end) break;
      this.next();
      if (t === '&') continue;
      if (this.peek() === '[') { this.next(); this.at = this.source.indexOf(']', this.at) + 1 || fail('no ]'); }
      if (this.peek() === end) break;
      out.push([]);
    }
    return out;
  }

  grid(rows, kind) {
    return m('mtable', { class: kind, displaystyle: kind === 'aligned' ? 'true' : null }, rows.map((cells) => m('mtr', null, cells)));
  }

  environment() {
    const name = this.raw().replace(/\*$/, '');
    if (!Object.hasOwn(FENCES, name)) fail(`\\begin{${name}}`);
    if (name === 'array' || name === 'alignedat') this.raw();
    const rows = this.rows('\\end'), [open, close] = FENCES[name];
    this.next();
    if (this.raw().replace(/\*$/, '') !== name) fail('another \\end');
    const kind = ALIGNED.has(name) ? 'aligned' : name === 'cases' || name === 'rcases' ? 'cases' : 'grid';
    return m('mrow', null, open === '' ? null : fence(open, { stretchy: 'true', symmetric: 'true' }), this.grid(rows, kind),
      close === '' ? null : fence(close, { stretchy: 'true', symmetric: 'true' }));
  }

  // Lines and columns without an environment are aligned too: models often leave it out.
  whole() {
    const rows = this.rows(undefined);
    return rows.length === 1 && rows[0].length === 1 ? m('mrow', null, [...rows[0][0].childNodes]) : this.grid(rows, 'aligned');
  }
}

const fraction = (props) => (p) => m('mfrac', props, p.argument(), p.argument());
const styled = (displaystyle, make) => (p) => m('mstyle', { displaystyle }, make(p));
const binom = (p) => m('mrow', null, fence('('), fraction({ linethickness: '0' })(p), fence(')'));
const over = (p) => { const above = p.argument(); return m('mover', null, p.argument(), above); };
const arrow = (char) => (p) => {
  const below = p.option(), above = p.argument(), base = m('mo', { stretchy: 'true' }, char);
  return below === undefined ? m('mover', null, base, above) : m('munderover', null, base, below, above);
};
const modulo = (p) => m('mrow', null, m('mspace', { width: '.5em' }), fence('('), word('mod'), m('mspace', { width: '.25em' }), p.argument(), fence(')'));

const BUILT = {
  frac: fraction(null), dfrac: styled('true', fraction(null)), tfrac: styled('false', fraction(null)), cfrac: styled('true', fraction(null)),
  binom, dbinom: styled('true', binom), tbinom: styled('false', binom),
  sqrt: (p) => { const index = p.option(), body = p.argument(); return index === undefined ? m('msqrt', null, body) : m('mroot', null, body, index); },
  left: (p) => p.left(), begin: (p) => p.environment(),
  overset: over, stackrel: over,
  underset: (p) => { const below = p.argument(); return m('munder', null, p.argument(), below); },
  substack: (p) => { p.expect('{'); const rows = p.rows('}'); p.next(); return p.grid(rows, 'grid'); },
  xrightarrow: arrow('→'), xleftarrow: arrow('←'),
  pmod: modulo, bmod: () => m('mo', { lspace: '.222em', rspace: '.222em' }, 'mod'),
  mod: () => m('mo', { lspace: '.5em', rspace: '.222em' }, 'mod'),
  operatorname: (p) => word(/^[\w .-]+$/.exec(p.raw())?.[0] ?? fail('a command in a name'), { class: 'operator' }),
  mathrm: (p) => upright(p), mathit: (p) => p.argument(), mathnormal: (p) => p.argument(), mathop: (p) => Object.assign(p.argument(), { limits: true }),
  boxed: (p) => m('mrow', { class: 'boxed' }, p.argument()), fbox: (p) => m('mrow', { class: 'boxed' }, m('mtext', null, p.raw())),
  phantom: (p) => m('mphantom', null, p.argument()),
  not: (p) => { const node = p.argument(); node.textContent += '\u0338'; return node; },
  tag: (p) => m('mtext', null, `\u00a0\u00a0(${p.raw()})`), label: (p) => { p.raw(); return m('mrow'); },
  hspace: (p) => { p.raw(); return m('mspace', { width: '1em' }); },
};

// \mathrm{d}, \mathrm{kg}: one word, not a product.
function upright(p) {
  const start = p.at, raw = p.peek() === '{' ? p.raw() : '';
  if (/^[A-Za-z0-9 ,.-]+$/.test(raw)) return word(raw);
  p.at = start;
  return p.argument();
}

// The <math> element of a formula, or null if it is not understood.
export function tex(source, display) {
  try {
    if (source.length > MAX_CHARS || source.trim() === '') return null;
    return m('math', { display: display ? 'block' : 'inline', alttext: source.trim() }, new Parser(source).whole());
  } catch (error) {
    if (error instanceof NotUnderstood) return null;
    throw error;
  }
}
