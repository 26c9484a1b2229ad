// Markdown, code and formulas that a model writes, drawn by the page's own modules in Chromium: tables of inputs and of
// what they must become, then hostile input under time limits. Prints TAP.
const { Front, check, finish, launch, must } = require('./harness.cjs');

// [Markdown, the elements it becomes]: (tag) for each element, its text inside.
const MARKDOWN = [
  ['plain', '<p>plain</p>'],
  ['one\ntwo', '<p>one<br></br>two</p>'],
  ['# Head #', '<h3>Head</h3>'],
  ['**bold** and *it* and ***both***', '<p><strong>bold</strong> and <em>it</em> and <strong><em>both</em></strong></p>'],
  ['**bold *inner* text**', '<p><strong>bold <em>inner</em> text</strong></p>'],
  ['***a** b*', '<p><em><strong>a</strong> b</em></p>'],
  ['a **line\nbreak** b', '<p>a <strong>line<br></br>break</strong> b</p>'],
  ['snake_case_name and __init__', '<p>snake_case_name and <strong>init</strong></p>'],
  ['2 * 3 * 4 and **open', '<p>2 * 3 * 4 and **open</p>'],
  ['~~gone~~ ~one~', '<p><del>gone</del> ~one~</p>'],
  ['`a *b* <i>` ``x`y``', '<p><code>a *b* <i></code> <code>x`y</code></p>'],
  ['\\*not\\* \\_em\\_ \\$5', '<p>*not* _em_ $5</p>'],
  ['[t](https://a.b/c_d) https://x.y/z.', '<p><a>t</a> <a>https://x.y/z</a>.</p>'],
  ['[**b**](mailto:a@b.c) <https://q.r>', '<p><a><strong>b</strong></a> <a>https://q.r</a></p>'],
  ['[x](javascript:alert(1)) [y](data:text/html,1) [z](/relative)', '<p>[x](javascript:alert(1)) [y](data:text/html,1) [z](/relative)</p>'],
  ['![alt](https://a.b/i.png)', '<p><a>alt</a></p>'],
  ['(see https://en.wikipedia.org/wiki/A_(b))', '<p>(see <a>https://en.wikipedia.org/wiki/A_(b))</a></p>'],
  ['- a\n- b\n  - c\n\n1. d\n2. e', '<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li></ul></li></ul><ol><li><p>d</p></li><li><p>e</p></li></ol>'],
  ['- [x] done\n- [ ] open', '<ul><li><span>☑</span><p>done</p></li><li><span>☐</span><p>open</p></li></ul>'],
  ['> quoted\n> more', '<blockquote><p>quoted<br></br>more</p></blockquote>'],
  ['| a | b |\n|---|--:|\n| 1 | x\\|y |', '<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>x|y</td></tr></tbody></table></div>'],
  ['a\n\n---\n\nb', '<p>a</p><hr></hr><p>b</p>'],
  ['<b>no</b> &amp;', '<p><b>no</b> &amp;</p>'],
];
// [Markdown, number of formulas, text without them]
const MONEY = [
  ['It costs $5 and $10.', 0], ['From $5-$10 a month', 0], ['$20, or 20$ each', 0], ['US$5 and A$6', 0], ['$HOME and $PATH', 0], ['a $ b $ c', 0],
  ['Let $x$ be', 1], ['$5x + 3 = 8$', 1], ['$2$ and $n$-th', 2], ['\\(a\\) and \\[b\\]', 2], ['$$c$$', 1], ['$$\nx = 1\n$$\nthen', 1],
  ['pay $5 for $x^2$', 1], ['```math\nx\n```', 1], ['`$x$`', 0], ['$\\alpha$, $\\beta$.', 2], ['$a\n\nb$', 0],
];
// [TeX, MathML]
const TEX = [
  ['x^2', '<msup><mi>x</mi><mn>2</mn></msup>'],
  ['a_i^{n+1}', '<msubsup><mi>a</mi><mi>i</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msubsup>'],
  ["f'(x)", '<msup><mi>f</mi><mo>′</mo></msup><mo>(</mo><mi>x</mi><mo>)</mo>'],
  ['\\frac{a}{b}', '<mfrac><mi>a</mi><mi>b</mi></mfrac>'],
  ['\\frac12', '<mfrac><mn>1</mn><mn>2</mn></mfrac>'],
  ['\\sqrt{x}', '<msqrt><mi>x</mi></msqrt>'],
  ['\\sqrt[3]{x}', '<mroot><mi>x</mi><mn>3</mn></mroot>'],
  ['\\alpha\\le\\Omega', '<mi>α</mi><mo>≤</mo><mi>Ω</mi>'],
  ['\\sum_{i=1}^n i', '<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>'],
  ['\\int_0^\\infty', '<msubsup><mo>∫</mo><mn>0</mn><mi>∞</mi></msubsup>'],
  ['\\int\\limits_0^1', '<munderover><mo>∫</mo><mn>0</mn><mn>1</mn></munderover>'],
  ['\\lim_{x\\to 0}', '<munder><mo>lim</mo><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder>'],
  ['\\text{if } x', '<mtext>if\u00a0</mtext><mi>x</mi>'],
  ['\\left(\\frac{1}{2}\\right]', '<mrow><mo>(</mo><mfrac><mn>1</mn><mn>2</mn></mfrac><mo>]</mo></mrow>'],
  ['\\left.x\\right|', '<mrow><mo></mo><mi>x</mi><mo>|</mo></mrow>'],
  ['\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}', '<mrow><mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>)</mo></mrow>'],
  ['a&=b\\\\&=c', '<mtable><mtr><mtd><mi>a</mi></mtd><mtd><mo>=</mo><mi>b</mi></mtd></mtr><mtr><mtd></mtd><mtd><mo>=</mo><mi>c</mi></mtd></mtr></mtable>'],
  ['\\mathbb{R}\\mathbf{v}', '<mi>ℝ</mi><mi>𝐯</mi>'],
  ['\\mathrm{kg}', '<mi>kg</mi>'],
  ['\\hat{x}', '<mover><mi>x</mi><mo>^</mo></mover>'],
  ['\\binom{n}{k}', '<mrow><mo>(</mo><mfrac><mi>n</mi><mi>k</mi></mfrac><mo>)</mo></mrow>'],
  ['3.14-1', '<mn>3.14</mn><mo>−</mo><mn>1</mn>'],
  ['\\{a\\}', '<mo>{</mo><mi>a</mi><mo>}</mo>'],
];
const NOT_TEX = ['\\unknown{x}', '\\frac{a}', 'a^b^c', '{', '}', '\\left(x', '\\begin{tikzpicture}\\end{tikzpicture}', '\\begin{matrix}1\\end{pmatrix}', '', '\\def\\a{b}',
  '\\constructor', '\\__proto__', '\\toString', '\\href{javascript:1}{x}', '{'.repeat(500) + '}'.repeat(500), 'x^'.repeat(200) + 'x'];
// [language, code, kind: text of coloured parts]
const CODE = [
  ['c', '#include <a.h>\nint f(void) { return 0x1f; } // c', 'meta:#include <a.h> type:int call:f type:void keyword:return number:0x1f comment:// c'],
  ['c++', 'std::vector<int> v; /* x */ "s\\"t" nullptr', 'type:vector type:int comment:/* x */ string:"s\\"t" value:nullptr'],
  ['python', 'def f(x):\n  """doc"""\n  return None # c', 'keyword:def call:f string:"""doc""" keyword:return value:None comment:# c'],
  ['py', '@dec\nf"a{b}" + \'c\'', 'meta:@dec string:f"a{b}" string:\'c\''],
  ['ts', 'const a: string = `x`; a / b; /re[/]x/g.test(a)', 'keyword:const type:string string:`x` string:/re[/]x/g call:test'],
  ['go', 'func main() { x := nil }', 'keyword:func call:main value:nil'],
  ['rust', "fn f<'a>(c: char) { println!(\"x\"); 'b' }", "keyword:fn type:'a type:char call:println! string:\"x\" string:'b'"],
  ['bash', 'if [ "$a" ]; then echo ${b} a#b # c\nfi', 'keyword:if string:"$a" keyword:then keyword:echo type:${b} comment:# c keyword:fi'],
  ['json', '{"a": [1, true, "b"]}', 'key:"a" number:1 value:true string:"b"'],
  ['yaml', 'a-b: 1\nc: "x" # c\n', 'key:a-b number:1 key:c string:"x" comment:# c'],
  ['html', '<a href="x">t</a><!-- c -->', 'keyword:<a key:href string:"x" keyword:> keyword:</a> comment:<!-- c -->'],
  ['css', '.a { color: #fff; width: 10px }', 'keyword:.a key:color value:#fff key:width number:10px'],
  ['sql', "SELECT a FROM t WHERE b = 'x' -- c", "keyword:SELECT keyword:FROM keyword:WHERE string:'x' comment:-- c"],
  ['diff', '@@ -1 +1 @@\n-a\n+b\n c', 'meta:@@ -1 +1 @@ removed:-a added:+b'],
  ['nothing', 'if x', ''],
  ['constructor', 'if x', ''],
  ['python', '"""open', 'string:"""open'],
];

// In the page: elements as text. Code blocks and the classes of elements are left out.
async function tools(page) {
  await page.evaluate(async () => {
    const load = (name) => import(`/dashboard/${name}.js`);
    const [md, tx, hl, inl] = await Promise.all(['markdown', 'tex', 'highlight', 'inline'].map(load));
    const show = (node) => (node.nodeType === 3 ? node.data : `<${node.localName}>${[...node.childNodes].map(show).join('')}</${node.localName}>`);
    window.t = {
      md, inl,
      markdown: (text) => md.markdown(text).map(show).join(''),
      formulas: (text) => { const el = document.createElement('div'); el.append(...md.markdown(text)); return el.querySelectorAll('math').length; },
      tex: (text) => { const el = tx.tex(text, false); return el === null ? null : [...el.firstChild.localName === 'mrow' ? el.firstChild.childNodes : [el.firstChild]].map(show).join(''); },
      code: (language, text) => hl.parts(text, language),
    };
  });
}

async function tables(page) {
  await check(`${MARKDOWN.length} pieces of Markdown become the right elements`, async () => {
    for (const [source, want] of MARKDOWN) {
      const got = await page.evaluate((text) => window.t.markdown(text), source);
      must(got === want, `${JSON.stringify(source)}\n  gave ${got}\n  not  ${want}`);
    }
  });
  await check('formulas are told from sums of money', async () => {
    for (const [source, want] of MONEY) {
      const got = await page.evaluate((text) => window.t.formulas(text), source);
      must(got === want, `${JSON.stringify(source)}: ${got} formulas, not ${want}`);
    }
  });
  await check(`${TEX.length} formulas become the right MathML`, async () => {
    for (const [source, want] of TEX) {
      const got = await page.evaluate((text) => window.t.tex(text), source);
      must(got === want, `${source}\n  gave ${got}\n  not  ${want}`);
    }
  });
  await check('a formula that is not understood is shown as its source', async () => {
    for (const source of NOT_TEX) must((await page.evaluate((text) => window.t.tex(text), source)) === null, source.slice(0, 60));
    const shown = await page.evaluate(() => window.t.markdown('a $\\foo{x}$ b'));
    must(shown === '<p>a <code>\\foo{x}</code> b</p>', shown);
  });
  await check('code is coloured, and no character of it is lost', async () => {
    for (const [language, source, want] of CODE) {
      const parts = await page.evaluate(([l, text]) => window.t.code(l, text), [language, source]);
      must(parts.map((part) => part[1]).join('') === source, `${language}: characters are lost`);
      const merged = [];
      for (const [kind, text] of parts) merged.push(kind === '' ? null : `${kind}:${text.trim()}`);
      const got = merged.filter(Boolean).join(' ');
      must(got === want, `${language}: ${source}\n  gave ${got}\n  not  ${want}`);
    }
  });
  await check('only web and mail addresses become links, which give nothing away', async () => {
    const links = await page.evaluate(() => {
      const el = document.createElement('div');
      el.append(...window.t.md.markdown('[a](https://x.y) [b](MAILTO:q@r.s) [c](jAvAscript:1) [d]( javascript:1) [e](<javascript:1>) <javascript:1> [f](vbscript:x) [g](//h.i)'));
      return [...el.querySelectorAll('a')].map((a) => [a.getAttribute('href'), a.rel, a.target].join(' '));
    });
    must(links.length === 2 && links[0] === 'https://x.y noopener noreferrer _blank' && links[1].startsWith('MAILTO:'), links);
  });
}

// Inputs made to take long. Each is built in the page and must be drawn in a time that only linear work keeps.
const HOSTILE = {
  'a line of 1 MB': "'word '.repeat(200000)",
  'a line of 1 MB without spaces': "'x'.repeat(1e6)",
  'stars': "'*'.repeat(3e5)",
  'stars and letters': "'*a'.repeat(1e5)",
  'open and closed stars': "'*a '.repeat(5e4) + 'a* '.repeat(5e4)",
  'deep emphasis': "'**a *b '.repeat(4e4) + 'c* d** '.repeat(4e4)",
  'underscores': "'_a '.repeat(1e5)",
  'backticks of all lengths': "Array.from({ length: 1300 }, (_, i) => '`'.repeat(i + 1)).join('a')",
  'brackets': "'['.repeat(1e5) + ']'.repeat(1e5)",
  'links to scripts': "'['.repeat(5e4) + '](javascript:x)'.repeat(5e4)",
  'open links': "'[a]('.repeat(1e5)",
  'images': "'!['.repeat(1e5)",
  'dollars': "'$a'.repeat(1e5)",
  'open formulas': "'\\\\('.repeat(1e5)",
  'open formulas on lines': "'\\\\[a\\n'.repeat(5e4)",
  'addresses': "'https://a.'.repeat(1e5)",
  'addresses with brackets': "'https://' + 'a)'.repeat(4e5)",
  'h': "'h'.repeat(3e5)",
  'quotes': "'>'.repeat(1e5) + ' x'",
  'quotes on lines': "'> > > > > > > > > > > x\\n'.repeat(2e4)",
  'lists': "Array.from({ length: 3000 }, (_, i) => ' '.repeat(i % 200) + '- x').join('\\n')",
  'an open fence': "'```js\\n' + 'a = /b/ + \"c\\n'.repeat(1e4)",
  'a heading of #': "'# ' + '#'.repeat(5e5) + 'x'",
  'a rule that is none': "'- '.repeat(3e5) + 'x'",
  'a rule of a table': "'|a|\\n' + '|--'.repeat(2e5) + 'x'",
  'spaces': "' '.repeat(1e6) + 'x'",
  'braces in a formula': "'$' + '{'.repeat(1900) + '$ '",
};
const LANGUAGES = ['c', 'cpp', 'js', 'python', 'go', 'rust', 'shell', 'json', 'yaml', 'html', 'css', 'sql', 'diff'];
const NASTY = ['"', "'", '`', '/*', '/[', '${', '#[', '"""', '<!', '<a ', '--', '\\', '1e', "'\\u{", 'a.', 'a-', '@', '"\\', '= /', ' ', 'r"', '&', 'a:'];
const LIMIT_MS = 10000; // linear work takes some 100 ms; work in the square takes minutes

async function hostile(page) {
  for (const [name, source] of Object.entries(HOSTILE)) {
    await check(`hostile Markdown is read in linear time: ${name}`, async () => {
      const [ms, depth] = await page.evaluate(`(() => {
        const text = ${source}, start = performance.now(), el = document.createElement('div');
        for (const block of window.t.md.markdown(text)) el.append(block);
        const ms = performance.now() - start, walk = document.createTreeWalker(el);
        let deep = 0, now = 0;
        const go = (step, by) => { if (walk[step]() === null) return false; now += by; deep = Math.max(deep, now); return true; };
        while (deep <= 60 && (go('firstChild', 1) || go('nextSibling', 0) || up())) { /* all nodes */ }
        function up() { while (go('parentNode', -1)) if (go('nextSibling', 0)) return true; return false; }
        return [ms, deep];
      })()`);
      console.log(`# ${Math.round(ms)} ms, ${depth} deep`);
      must(ms < LIMIT_MS, `${Math.round(ms)} ms`);
      must(depth <= 60, `${depth} elements deep`);
    });
  }
  await check(`hostile code is coloured in linear time in ${LANGUAGES.length} languages`, async () => {
    for (const language of LANGUAGES) {
      const slow = await page.evaluate(([l, list]) => list.map((piece) => {
        const text = piece.repeat(Math.floor(100000 / piece.length)), start = performance.now();
        const lost = window.t.code(l, text).map((part) => part[1]).join('') !== text;
        return [piece, Math.round(performance.now() - start), lost];
      }).filter(([, ms, lost]) => ms > 5000 || lost), [language, NASTY]);
      must(slow.length === 0, `${language}: ${JSON.stringify(slow)}`);
    }
  });
}

// Text that grows by a few characters must in the end look as if it had come at once.
async function growth(page) {
  await check('an answer that grows looks at each step as if it had come at once', async () => {
    const source = ['# A', 'text **bold', 'more** end', '', '- a', '', '- b', '  - c', '', '```js', 'let a = 1;', '', 'b', '```', '| a | b |', '|---|---|', '| 1 | 2 |',
      '', '$$', 'x^2', '$$', 'after\r', '> q', '', '1. x', '', '2. y', 'end'].join('\n');
    const wrong = await page.evaluate((text) => {
      const prose = new window.t.md.Prose(), whole = document.createElement('div');
      for (let n = 0; n <= text.length; n++) {
        prose.update(text.slice(0, n));
        whole.replaceChildren(...window.t.md.markdown(text.slice(0, n)));
        if (prose.el.innerHTML !== whole.innerHTML) return [n, prose.el.innerHTML, whole.innerHTML];
      }
      return null;
    }, source);
    must(wrong === null, wrong);
  });
}

async function main() {
  const front = new Front();
  let browser;
  try {
    await front.start();
    browser = await launch();
    const page = await browser.newPage();
    await page.goto(`${front.url}/dashboard#model`);
    await tools(page);
    await tables(page);
    await growth(page);
    await hostile(page);
  } catch (error) {
    await check('the tests run to their end', async () => { throw error; });
  } finally {
    await browser?.close().catch(() => {});
    await front.stop();
  }
  finish();
}

main();
