// Drives a real `shoal serve` and looks at its page. Prints TAP.
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { check, finish, freePort, launch, must, sleep, tally, until } = require('./harness.cjs');

const root = path.join(__dirname, '..', '..');
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'shoal-browser-'));
const pictures = process.env.SHOAL_SCREENSHOTS;

class Server {
  async start() {
    this.port = await freePort();
    this.url = `http://127.0.0.1:${this.port}`;
    this.socket = path.join(work, 'engine.sock');
    this.log = fs.openSync(path.join(work, 'serve.log'), 'w');
    this.child = spawn(process.env.SHOAL, ['serve', '--port', String(this.port), '--socket', this.socket, '--degrade-after', '-1'],
      { cwd: root, stdio: ['ignore', this.log, this.log] });
    await until('the server is ready', async () => (await this.get('/health'))?.status === 200, 90000);
  }

  async get(where) {
    try { return await fetch(this.url + where); } catch { return null; }
  }

  async snapshot() {
    return (await this.get('/metrics/snapshot'))?.json();
  }

  // The process of the server that has this part.
  pidOf(part, rank) {
    for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      try {
        const env = fs.readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
        const parent = / (\d+)/.exec(fs.readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) \w/, ''))[1];
        if (Number(parent) === this.child.pid && env.includes(`SHOAL_PART=${part}`) &&
          (rank === undefined || env.includes(`SHOAL_RANK=${rank}`))) return Number(pid);
      } catch { /* the process has ended */ }
    }
    return null;
  }

  async stop() {
    this.child.kill('SIGTERM');
    await Promise.race([new Promise((resolve) => this.child.on('exit', resolve)), sleep(15000)]);
    this.child.kill('SIGKILL');
  }
}

// A prefix that all requests share, long enough for the prefix cache.
const shared = 'You are a patient teller of tales who lives by the sea and knows every fish by its name. '.repeat(4);

// Requests in the background, so that there is something to see.
class Load {
  constructor(server, count) {
    this.on = true;
    this.runs = Array.from({ length: count }, (_, i) => this.run(server, i));
  }

  async run(server, i) {
    for (let turn = 0; this.on; turn++) {
      const body = { messages: [{ role: 'system', content: shared }, { role: 'user', content: `Tell a long story number ${i} and ${turn % 3}.` }], max_tokens: 24 + 8 * i, ignore_eos: true };
      try {
        const answer = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST',
          headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
        await answer.text();
      } catch { /* the server is being killed */ }
      await sleep(100);
    }
  }

  async stop() {
    this.on = false;
    await Promise.all(this.runs);
  }
}

const text = (page, selector) => page.locator(selector).first().textContent();

async function overview(page, server) {
  await check('a browser that asks for / gets the dashboard', async () => {
    await page.goto(`${server.url}/`);
    must(new URL(page.url()).pathname === '/dashboard', page.url());
    await until('the page is live', async () => (await text(page, '#state')) === 'live');
  });
  await check('the page forbids all scripts and styles but its own', async () => {
    const policy = (await server.get('/dashboard')).headers.get('content-security-policy') ?? '';
    must(policy.includes("default-src 'none'") && policy.includes("script-src 'self'"), policy);
    must(!policy.includes('unsafe'), policy);
  });
  await check('the group is drawn: two ranks, shares, a measured link', async () => {
    await until('two ranks', async () => (await page.locator('.node').count()) === 2);
    must((await page.locator('.node.lost').count()) === 0, 'a rank is shown as lost');
    must(/layers \d+–\d+ · \d+ %/.test(await text(page, '.node >> nth=1')), await text(page, '.node >> nth=1'));
    await until('figures of the link', async () => /µs/.test(await text(page, '.cluster')));
    must(/GB\/s/.test(await text(page, '.cluster')), await text(page, '.cluster'));
    await until('traffic per token', async () => /per token/.test(await text(page, '.cluster')));
  });
  await check('every figure is live under load and has a plot', async () => {
    await until('all plots have a line', async () => page.evaluate(() => [...document.querySelectorAll('.gauge')]
      .filter((g) => g.getAttribute('aria-label') !== 'Speculative tokens accepted')
      .every((g) => /L/.test(g.querySelector('.line').getAttribute('d') ?? '') && g.querySelector('.big').textContent !== '–')), 40000);
    must((await page.locator('.gauge').count()) === 9, 'not nine figures');
    const ticks = await page.locator('.gauge >> nth=0').locator('.grid text').allTextContents();
    must(ticks.includes('now') && ticks.includes('0'), ticks.join());
    await until('tokens flow', async () => parseFloat(await text(page, '.gauge .big')) > 0);
  });
  await check('a reload shows the plots again, from the server', async () => {
    const points = () => page.locator('.gauge .line').first().getAttribute('d').then((d) => (d ?? '').split(/[ML]/).length);
    const before = await until('some points', async () => { const n = await points(); return n > 6 ? n : 0; }, 60000);
    await page.reload();
    await until('the points', async () => (await points()) >= before, 10000); // without the server's, two or three
  });
  await check('pointer and arrow keys read values from a plot', async () => {
    const plot = page.locator('.gauge .plot').first();
    await plot.hover({ position: { x: 320, y: 60 } });
    await until('a value', async () => /generated [\d.]+ tok\/s/.test(await text(page, '.gauge .tip')));
    await page.mouse.move(0, 0);
    await plot.focus();
    await page.keyboard.press('ArrowLeft');
    await until('a value', async () => page.locator('.gauge .tip').first().isVisible());
    await page.keyboard.press('Escape');
  });
  await check('each rank has its memory, CPU, tokens and times', async () => {
    await until('both cards are full', async () => {
      const cards = await page.locator('.rank').allTextContents();
      return cards.length === 2 && cards.every((card) => /Weights[\d.]+ .iB/.test(card) && /[\d.]+ cores/.test(card) &&
        /Compute\d+ %/.test(card) && /Collectives\d+ %/.test(card) && /Tokens computed[\d,]+/.test(card));
    });
  });
}

async function requests(page, server) {
  await check('the history has a row for each request and opens its details', async () => {
    await page.keyboard.press('3');
    await until('rows', async () => (await page.locator('.requests tbody tr').count()) > 2);
    await until('the dialog', async () => { // rows keep moving under load
      await page.locator('.requests tbody button').first().focus();
      await page.keyboard.press('Enter');
      return page.locator('dialog.detail').isVisible();
    });
    const said = await text(page, 'dialog.detail');
    for (const word of ['req_', 'Queue', 'Prefill', 'Decode', 'From the cache', 'Time to first token']) must(said.includes(word), said);
    await page.keyboard.press('Escape');
    await until('closed', async () => !(await page.locator('dialog.detail').isVisible()));
  });
  await check('a request that fails is in the error log', async () => {
    await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2000, ignore_eos: true, timeout: 0.05 }) });
    await until('an entry', async () => (await page.locator('.log li.bad').count()) > 0);
  });
  await check('model card, settings in effect and snippets are right', async () => {
    await page.keyboard.press('4');
    await until('the name', async () => /demo/.test(await text(page, '.model-name')));
    must(/Context[\d,]+ tokens/.test(await text(page, '#model-card')), await text(page, '#model-card'));
    must((await text(page, '#settings')).includes(`Port${server.port}`), await text(page, '#settings'));
    for (const [name, sign] of [['curl', 'curl http'], ['Python', 'from openai'], ['JavaScript', 'import OpenAI']]) {
      await page.locator('#snippets .segments button', { hasText: name }).click();
      const code = await text(page, '#snippets code');
      must(code.includes(sign) && code.includes(server.url) && code.includes('YOUR_API_KEY'), code);
    }
  });
}

const answerText = (page) => page.locator('.message.assistant .body').last().textContent();
const streaming = async (page) => (await page.locator('.message.streaming').count()) > 0;

// Records the lengths of the growing answer, inside the page so that no step is missed.
function watchGrowth(page) {
  return page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const text = document.querySelector('.message.assistant.streaming .body > .prose')?.textContent;
      if (text && !text.startsWith('Waiting')) window.lengths.add(text.length);
    }).observe(document.querySelector('.chat-log'), { childList: true, subtree: true });
  });
}

async function chat(page) {
  // ignore_eos: otherwise an answer of the demo model may end before the page has drawn twice.
  await page.route('**/v1/chat/completions', (route) => route.continue({
    postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) }));
  await check('a chat streams, and says its speed', async () => {
    await page.keyboard.press('2');
    await page.locator('.chat-settings summary').click();
    await page.fill('#control-max_tokens', '1200');
    await watchGrowth(page);
    await page.locator('#chat-input').fill('Tell me a story.');
    await page.keyboard.press('Enter');
    await until('the answer ends', async () => (await page.locator('.message.assistant .tools').count()) > 0, 60000);
    const steps = await page.evaluate(() => window.lengths.size);
    must(steps > 2, `the text grew in ${steps} steps`);
    must(/tok\/s · first token .* tokens/.test(await text(page, '.timings')), await text(page, '.timings'));
  });
  await check('stop stops', async () => {
    await page.fill('#control-max_tokens', '4000');
    await page.locator('#chat-input').fill('Tell me a very long story.');
    await page.keyboard.press('Enter');
    await until('it streams', async () => (await streaming(page)) && (await answerText(page)).length > 20);
    await page.locator('.stop').click();
    await until('it stops', async () => !(await streaming(page)), 2000);
    const cut = await answerText(page);
    must(/Stopped\./.test(cut), cut);
    await sleep(700);
    must((await answerText(page)) === cut, 'text came after the stop');
    await page.unroute('**/v1/chat/completions');
  });
  await check('regenerate answers again, edit sends another message', async () => {
    await page.fill('#control-max_tokens', '8');
    await page.locator('.message.assistant').last().locator('button', { hasText: 'Regenerate' }).click();
    await until('it ends', async () => !(await streaming(page)) && !/Stopped/.test(await answerText(page)));
    await page.locator('.message.user').first().locator('button', { hasText: 'Edit' }).click();
    await page.locator('.message.user textarea').fill('Something else');
    await page.keyboard.press('Enter');
    await until('it ends', async () => (await page.locator('.message').count()) === 2 && !(await streaming(page)));
    must((await text(page, '.message.user .plain')) === 'Something else', 'the message was not replaced');
  });
  await check('conversations outlive the page', async () => {
    await page.locator('#chat-new').click();
    await page.locator('#chat-input').fill('The second one');
    await page.keyboard.press('Enter');
    await until('it ends', async () => (await page.locator('.message.assistant').count()) === 1 && !(await streaming(page)));
    await page.reload();
    const names = () => page.locator('.chat-name .name').allTextContents();
    await until('both', async () => (await names()).length === 2);
    must((await names()).join() === 'The second one,Tell me a story.', (await names()).join());
  });
  await check('probabilities are shown on hover and by key', async () => {
    await page.locator('.chat-settings summary').click();
    await page.locator('.check input').check();
    await page.locator('#chat-input').fill('With probabilities');
    await page.keyboard.press('Enter');
    await page.locator('button', { hasText: 'Probabilities' }).waitFor();
    await page.locator('button', { hasText: 'Probabilities' }).click();
    await page.locator('.token').nth(2).hover();
    await until('five others', async () => (await page.locator('.token-tip code').count()) === 5);
    await page.locator('.tokens').focus();
    await page.keyboard.press('ArrowRight');
    must(/%/.test(await text(page, '.token-tip')), await text(page, '.token-tip'));
    await page.locator('.check input').uncheck();
  });
}

const weather = [{ type: 'function', function: { name: 'get_weather', description: 'Weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }];

async function toolCalls(page) {
  await check('the model calls a tool and answers from its result', async () => {
    await page.fill('#control-max_tokens', '80');
    await page.fill('#control-tools', '[{');
    must(/Tools/.test(await text(page, '.controls [role=alert]')), 'broken JSON is not reported');
    await page.fill('#control-tools', JSON.stringify(weather));
    await page.locator('#chat-new').click();
    await page.locator('#chat-input').fill('What is the weather in Paris?');
    await page.keyboard.press('Enter');
    await page.locator('.tool-result textarea').fill('{"temperature": 21, "sky": "clear"}');
    must(/get_weather.*Paris/s.test(await text(page, '.tool-call')), await text(page, '.tool-call'));
    await page.locator('.tool-result > button').click();
    await until('the answer', async () => (await page.locator('.message').count()) === 4 && !(await streaming(page)));
    must((await page.locator('.message .error-box').count()) === 0, await answerText(page));
    must((await answerText(page)).length > 5, await answerText(page));
    await page.fill('#control-tools', '');
  });
}

const hostile = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script> [x](javascript:hacked=3) **bold** `<b>code</b>`';

async function hostileText(page) {
  await check('hostile text from user and model stays text', async () => {
    const chunk = (delta, finish = null) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 200, contentType: 'text/event-stream',
      body: chunk({ role: 'assistant', reasoning_content: hostile }) + chunk({ content: `${hostile}\n\n\`\`\`html\n${hostile}\n\`\`\`` }) +
        chunk({ tool_calls: [{ index: 0, id: 'a', function: { name: hostile, arguments: `{"q":${JSON.stringify(hostile)}}` } }] }) +
        chunk({}, 'tool_calls') + 'data: [DONE]\n\n' }));
    await page.locator('#chat-new').click();
    await page.locator('#chat-input').fill(hostile);
    await page.keyboard.press('Enter');
    await until('the call', () => page.locator('.tool-call').isVisible());
    await page.locator('.reasoning summary').click();
    must((await page.locator('.chat-log img, .chat-log script, .chat-log b, .chat-log a[href^="javascript"]').count()) === 0, 'text became markup');
    must((await answerText(page)).includes('<img src=x onerror='), 'the text is not shown');
    must((await page.locator('.message.assistant > .body > .prose > p strong').count()) === 1, 'markdown is not shown');
    must((await page.evaluate(() => window.hacked)) === undefined, 'a script ran');
    await page.unroute('**/v1/chat/completions');
  });
  await check('an error of the API is shown as text', async () => {
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 400, contentType: 'application/json',
      body: JSON.stringify({ error: { message: hostile } }) }));
    await page.locator('.message button', { hasText: 'Regenerate' }).click();
    await until('the error', () => page.locator('.message .error-box').isVisible());
    must((await text(page, '.message .error-box')) === hostile, 'not as it came');
    await page.unroute('**/v1/chat/completions');
    await page.locator('.chat-list li').first().hover();
    await page.locator('.chat-list li').first().locator('button').last().click();
  });
}

async function faults(page, server) {
  await page.keyboard.press('Escape');
  await page.evaluate(() => { document.activeElement.blur(); location.hash = 'overview'; });
  await check('a rank that was killed and comes back at once is marked', async () => {
    process.kill((await server.snapshot()).engine.ranks[1].pid, 'SIGKILL');
    await until('the rank is marked', async () => (await page.locator('.node.back, .node.lost').count()) > 0, 10000);
    await until('it is online', async () => (await page.locator('.node.online').count()) === 2, 30000);
  });
  await check('a lost rank is shown, and so is its return', async () => {
    // Its replacements are killed too, so that it is away long enough to be seen.
    const kill = () => { const pid = server.pidOf('engine', 1); if (pid !== null) process.kill(pid, 'SIGKILL'); };
    const start = Date.now(), again = setInterval(kill, 20);
    kill();
    try {
      await until('the rank is shown as lost', async () => (await page.locator('.node.lost').count()) > 0, 10000);
    } finally {
      clearInterval(again);
    }
    console.log(`# shown ${Date.now() - start} ms after the kill`);
    must(await page.locator('#banner').isVisible(), 'no banner');
    must(/lost/.test(await text(page, '.rank[data-rank="1"]')), 'the card does not say so');
    await until('it is back', async () => (await page.locator('.node.lost').count()) === 0, 60000);
    await until('no banner', async () => !(await page.locator('#banner').isVisible()), 10000);
  });
  await check('the page reconnects when the API is killed and restarted', async () => {
    const pid = server.pidOf('api');
    must(pid !== null, 'the API process is not found');
    process.kill(pid, 'SIGKILL');
    await until('the page says so', async () => (await text(page, '#state')) === 'offline', 6000);
    await until('the page is live again', async () => (await text(page, '#state')) === 'live', 60000);
    await until('the engine is seen again', async () => (await page.locator('.node.lost').count()) === 0);
    await page.evaluate(() => { location.hash = 'requests'; });
    await until('the log says so', async () => /responds again/.test(await text(page, '.log')));
  });
}

async function keys(browser, server) {
  await check('a server with a key: the page asks for it and keeps it in the tab only', async () => {
    const port = await freePort();
    const api = spawn(process.env.SHOAL, ['api', '--socket', server.socket, '--port', String(port), '--api-key', 'open-sesame-4fZq81'],
      { cwd: root, stdio: 'ignore' });
    try {
      await until('it answers', async () => { try { return (await fetch(`http://127.0.0.1:${port}/health`)).ok; } catch { return false; } });
      const context = await browser.newContext(), page = await context.newPage();
      await page.goto(`http://127.0.0.1:${port}/dashboard`);
      await until('it asks', () => page.locator('#key-dialog').isVisible());
      await page.fill('#api-key', 'open-sesame-4fZq81');
      await page.keyboard.press('Enter');
      await until('the page is live', async () => (await text(page, '#state')) === 'live');
      await until('two ranks', async () => (await page.locator('.node').count()) === 2);
      const kept = await page.evaluate(() => [JSON.stringify(localStorage), sessionStorage.getItem('key')]);
      must(!kept[0].includes('open-sesame-4fZq81') && kept[1] === 'open-sesame-4fZq81', kept.join());
      await context.close();
    } finally {
      api.kill('SIGKILL');
    }
  });
}

// A screen reader cannot announce a control without a name.
async function looks(page) {
  await check('every control has a name', async () => {
    for (const view of ['overview', 'chat', 'requests', 'model']) {
      await page.evaluate((name) => { location.hash = name; }, view);
      const bare = await page.evaluate(() => [...document.querySelectorAll('button, input, textarea, select, [role=img], a')]
        .filter((el) => el.offsetParent !== null && !el.getAttribute('aria-label') && !el.textContent.trim() &&
          !(el.labels?.length > 0)).map((el) => el.outerHTML.slice(0, 120)));
      must(bare.length === 0, bare.join('\n'));
    }
  });
  await check('nothing is wider than a phone', async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    for (const view of ['overview', 'chat', 'requests', 'model']) {
      await page.evaluate((name) => { location.hash = name; }, view);
      await sleep(200);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      must(wide <= 390, `${view} is ${wide} wide`);
    }
    await page.setViewportSize({ width: 1360, height: 900 });
  });
}

async function shoot(page, name, view, scheme, size, full = false) {
  if (!pictures) return;
  await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
  await page.setViewportSize(size);
  await page.evaluate((hash) => { location.hash = hash; }, view);
  await sleep(1300);
  await page.screenshot({ path: path.join(pictures, name), fullPage: full });
}

// Long answers that are aborted all at once. Not by fetch: Node 18's fetch may lose its abort signal.
function flood(server, count) {
  const body = JSON.stringify({ prompt: 'Once', max_tokens: 1500, ignore_eos: true });
  const requests = Array.from({ length: count }, () => {
    const request = http.request(`${server.url}/v1/completions`, { method: 'POST', agent: false,
      headers: { 'Content-Type': 'application/json' } }, (answer) => answer.resume());
    request.on('error', () => {});
    request.end(body);
    return request;
  });
  return { abort: () => requests.forEach((request) => request.destroy()) };
}

async function queue(page, server) {
  const level = () => page.locator('.gauge[aria-label="Queue"]').getAttribute('data-level');
  const capacity = (await (await server.get('/queue')).json()).max;
  await page.evaluate(() => { location.hash = 'overview'; });
  await check('a queue turns amber as it fills, red when full, and green again when empty', async () => {
    const half = flood(server, 32 + Math.ceil(capacity / 2));
    await until('amber', async () => (await level()) === 'amber');
    const rest = flood(server, capacity);
    await until('red', async () => (await level()) === 'red');
    half.abort();
    rest.abort();
    await until('green', async () => (await level()) === 'green');
  });
}

const wide = { width: 1360, height: 900 }, phone = { width: 390, height: 844 };

async function main() {
  const server = new Server();
  let browser;
  try {
    await server.start();
    browser = await launch();
    const context = await browser.newContext({ viewport: wide, reducedMotion: 'reduce', colorScheme: 'dark' });
    const page = await context.newPage(), complaints = [];
    page.setDefaultTimeout(8000);
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => { if (/Content.Security/.test(message.text())) complaints.push(message.text()); });
    const load = new Load(server, 3);
    await overview(page, server);
    await requests(page, server);
    await chat(page);
    await toolCalls(page);
    if (pictures) await sleep(Number(process.env.SHOAL_SCREENSHOT_WAIT_MS ?? 30000));
    await shoot(page, 'dashboard-dark.png', 'overview', 'dark', wide, true);
    await shoot(page, 'dashboard-light.png', 'overview', 'light', wide, true);
    await shoot(page, 'dashboard-phone.png', 'overview', 'dark', phone);
    await page.setViewportSize(wide);
    await page.evaluate(() => { location.hash = 'chat'; });
    await load.stop();
    await queue(page, server);
    await page.evaluate(() => { location.hash = 'chat'; });
    await hostileText(page);
    await looks(page);
    await keys(browser, server);
    await faults(page, server);
    await check('no script failed and the policy blocked nothing', async () => must(complaints.length === 0, complaints.join('\n')));
  } catch (error) {
    await check('the tests run to their end', async () => { throw error; });
    console.log(fs.readFileSync(path.join(work, 'serve.log'), 'utf8').split('\n').slice(-15).map((line) => `# ${line}`).join('\n'));
  } finally {
    await browser?.close().catch(() => {});
    await server.stop();
  }
  if (tally.failures === 0 && !process.env.SHOAL_KEEP) fs.rmSync(work, { recursive: true, force: true });
  finish();
}

main();
