// The chat page in Chromium, with answers that the test makes. Prints TAP.
const fs = require('node:fs');
const path = require('node:path');
const { Front, check, chunk, event, finish, launch, must, saying, sleep, until } = require('./harness.cjs');

const pictures = process.env.SHOAL_SCREENSHOTS;
const SNAPSHOT = { uptime_s: 3600, status: 'healthy', model: 'demo', models: [], engine: null };
const text = (page, selector) => page.locator(selector).first().textContent();
const body = (page) => page.locator('.message.assistant .body').last().innerText();
const idle = async (page) => (await page.locator('.message.streaming').count()) === 0;
const names = (page) => page.locator('.chat-name .name').allTextContents();

async function open(page, front) {
  await page.goto(`${front.url}/dashboard#chat`);
  await until('the page', () => page.locator('#chat-input').isVisible());
}

// Sends a message and waits for the end of the answer.
async function say(page, front, words, answer = saying('Fine.')) {
  const before = front.count ?? 0;
  front.chat = answer;
  await page.locator('#chat-input').fill(words);
  await page.locator('#chat-input').press('Enter');
  await until('the request', () => (front.count ?? 0) > before);
  await until('the answer', () => idle(page));
}

async function fresh(page) {
  await page.locator('#chat-new').click();
  await until('a new conversation', async () => (await page.locator('.message').count()) === 0);
}

async function menu(page, item) {
  await page.locator('.menu summary').click();
  await page.locator('.menu button', { hasText: item }).click();
}

async function saved(page, act) {
  const [download] = await Promise.all([page.waitForEvent('download'), act()]);
  return { name: download.suggestedFilename(), text: fs.readFileSync(await download.path(), 'utf8') };
}

async function branches(page, front) {
  await check('an earlier message that is edited makes a branch, and both stay', async () => {
    await say(page, front, 'First question', saying('First answer'));
    await say(page, front, 'Second question', saying('Second answer'));
    front.chat = saying('Other answer');
    await page.locator('.message.user').first().locator('button', { hasText: 'Edit' }).click();
    await page.locator('.message.user textarea').fill('Changed question');
    await page.keyboard.press('Enter');
    await until('the branch', async () => (await page.locator('.message').count()) === 2 && (await idle(page)) && /Other/.test(await body(page)));
    must(front.asked.messages.length === 1 && front.asked.messages[0].content === 'Changed question', front.asked.messages);
    must((await text(page, '.branches .num')) === '2 / 2', await text(page, '.branches .num'));
    await page.locator('button[aria-label="Previous version"]').first().click();
    await until('the first branch', async () => (await page.locator('.message').count()) === 4);
    must(/Second answer/.test(await body(page)), await body(page));
  });
  await check('regenerate gives another version of an answer', async () => {
    front.chat = saying('Second answer, again');
    await page.locator('.message.assistant').last().locator('button', { hasText: 'Regenerate' }).click();
    await until('the answer', async () => (await idle(page)) && /again/.test(await body(page)));
    must((await page.locator('.message').count()) === 4, 'not as many messages');
    must(front.asked.messages.at(-1).content === 'Second question', front.asked.messages);
    must((await page.locator('.branches').count()) === 2, 'no choice of versions');
  });
  await check('conversations and their branches outlive the page', async () => {
    await page.reload();
    await until('the messages', async () => (await page.locator('.message').count()) === 4);
    must(/again/.test(await body(page)), await body(page));
    await page.locator('button[aria-label="Previous version"]').last().click();
    await until('the other version', async () => !/again/.test(await body(page)));
  });
}

async function lists(page, front) {
  await check('a conversation is renamed in its heading', async () => {
    await page.locator('#chat-title').fill('About fish');
    await page.keyboard.press('Enter');
    await until('the name', async () => (await names(page)).includes('About fish'));
    await page.reload();
    await until('the name', async () => (await names(page)).includes('About fish'));
  });
  await check('search finds words on every branch and opens the message', async () => {
    await fresh(page);
    await say(page, front, 'Something quite different', saying('The anglerfish lives in the deep.'));
    await page.keyboard.press('Escape');
    await page.locator('.chat-log').focus();
    await page.keyboard.press('f');
    await page.keyboard.type('CHANGED question');
    await until('one result', async () => (await text(page, '.found')) === '1 conversation');
    must((await text(page, '.snippet mark')) === 'Changed question', await text(page, '.snippet'));
    await page.keyboard.press('Enter');
    await until('the branch', async () => (await text(page, '.message.user .plain')) === 'Changed question');
    await page.locator('#chat-search').fill('anglerfish deep');
    await until('the other', async () => (await names(page)).join() === 'Something quite different');
    await page.locator('#chat-search').fill('no such words');
    await until('nothing', async () => (await text(page, '.found')) === 'Nothing found');
    await page.locator('#chat-search').press('Escape');
    await until('all', async () => (await names(page)).length === 2);
  });
  await check('a deleted conversation comes back with undo, and without it is gone', async () => {
    await page.locator('.chat-list li', { hasText: 'Something' }).hover();
    await page.locator('button[aria-label="Delete Something quite different"]').click();
    await until('it is gone', async () => (await names(page)).length === 1);
    await page.locator('.chat-notice button', { hasText: 'Undo' }).click();
    await until('it is back', async () => (await names(page)).length === 2);
    must(/anglerfish/.test(await body(page)), 'not the conversation');
    await menu(page, 'Delete');
    await until('it is gone', async () => (await names(page)).length === 1);
    await page.reload();
    await until('the other one', async () => (await names(page)).join() === 'About fish');
  });
}

async function files(page, front) {
  await check('a conversation is exported as Markdown and as JSON, and imported again', async () => {
    const md = await saved(page, () => menu(page, 'Export as Markdown'));
    must(md.name === 'about-fish.md' && /^# About fish\n/.test(md.text) && /## You\n\nChanged question/.test(md.text), md);
    const json = await saved(page, () => menu(page, 'Export as JSON'));
    must(JSON.parse(json.text).conversations[0].messages.length === 7, json.text);
    await page.locator('#chat-import').setInputFiles({ name: 'in.json', mimeType: 'application/json', buffer: Buffer.from(json.text) });
    await until('two of them', async () => (await names(page)).join() === 'About fish,About fish');
    const all = await saved(page, () => page.locator('button', { hasText: 'Export all' }).click());
    must(JSON.parse(all.text).conversations.length === 2, all.name);
  });
  await check('a file that is no export is refused with the reason and the place', async () => {
    const good = { format: 'shoal-chats', version: 1, conversations: [{ messages: [{ role: 'user', content: 'x', parent: -1 }] }] };
    const bad = [['{', /not JSON/], ['[]', /"format" is not/], [JSON.stringify({ ...good, version: 9 }), /version 9/],
      [JSON.stringify({ ...good, conversations: [{ messages: [{ role: 'user', content: 5, parent: -1 }] }] }), /conversations\[0\]\.messages\[0\]\.content is not a text/],
      [JSON.stringify({ ...good, conversations: [{ messages: [{ role: 'root', content: '', parent: -1 }] }] }), /role is not one of user, assistant, tool/],
      [JSON.stringify({ ...good, conversations: [{ messages: [{ role: 'user', content: '', parent: 0 }] }] }), /parent is not a whole number from -1 to -1/]];
    for (const [source, why] of bad) {
      await page.locator('#chat-import').setInputFiles({ name: 'bad.json', mimeType: 'application/json', buffer: Buffer.from(source) });
      await until(`the reason ${why}`, async () => why.test(await page.locator('.chat-notice.bad').last().innerText().catch(() => '')));
    }
    must((await names(page)).length === 2, 'something was imported');
    await page.locator('.chat-notice.bad button[aria-label="Dismiss"]').last().click();
  });
  await check('text files are attached, shown with their sizes and sent as fenced text', async () => {
    await fresh(page);
    await page.locator('#chat-files').setInputFiles([{ name: 'a.py', mimeType: 'text/plain', buffer: Buffer.from('print("```")\n') },
      { name: 'b.bin', mimeType: 'application/octet-stream', buffer: Buffer.from([1, 0, 2]) }, { name: 'c.txt', mimeType: 'text/plain', buffer: Buffer.from([0xff, 0xfe, 0x41]) },
      { name: 'big.txt', mimeType: 'text/plain', buffer: Buffer.alloc(1100000, 97) }]);
    await until('the reasons', async () => (await page.locator('.refused li').count()) === 3);
    const refused = await text(page, '.refused');
    must(/b\.bin is not attached: a binary file/.test(refused) && /c\.txt is not attached: not text in UTF-8/.test(refused) && /big\.txt is not attached: 1\.05 MiB/.test(refused), refused);
    must(/a\.py13 B/.test(await text(page, '.files.pending')), await text(page, '.files.pending'));
    await page.evaluate(() => { // dropped and pasted
      const data = new DataTransfer(), clip = new DataTransfer();
      data.items.add(new File(['dropped text'], 'd.md'));
      document.querySelector('.chat-main').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
      clip.items.add(new File(['x'], 'e.txt'));
      document.querySelector('#chat-input').dispatchEvent(new ClipboardEvent('paste', { clipboardData: clip, bubbles: true, cancelable: true }));
    });
    await until('three files', async () => (await page.locator('.files.pending li').count()) === 3);
    await page.locator('button[aria-label="Remove e.txt"]').click();
    await say(page, front, 'What is this?');
    must(front.asked.messages[0].content === 'File a.py:\n````py\nprint("```")\n````\n\nFile d.md:\n```md\ndropped text\n```\n\nWhat is this?', front.asked.messages[0].content);
    must((await page.locator('.message.user .files li').count()) === 2 && (await page.locator('.files.pending').isHidden()), 'not shown with the message');
  });
}

async function settings(page, front) {
  await check('system prompt and sampling belong to the conversation', async () => {
    await page.locator('.chat-settings summary').click();
    await page.fill('#control-system', 'Be brief.');
    await page.fill('#control-temperature', '0.3');
    await say(page, front, 'One');
    must(front.asked.messages[0].content === 'Be brief.' && front.asked.temperature === 0.3, front.asked);
    await fresh(page);
    must((await page.inputValue('#control-system')) === 'Be brief.', 'a new conversation does not start with them');
    await page.fill('#control-system', 'Be long.');
    await say(page, front, 'Two');
    await page.locator('.chat-name', { hasText: 'What is this?' }).click();
    await until('its own', async () => (await page.inputValue('#control-system')) === 'Be brief.');
    await page.locator('button', { hasText: 'Reset to the model' }).click();
  });
}

const RICH = ['# Result\n\nThe *energy* is $E = mc^2$, for about $5 a day.\n\n```python\ndef f(x):\n    return x ** 2  # square\n```\n\n$$\\sum_{i=1}^n i = \\frac{n(n+1)}{2}$$\n\n| a | b |\n|---|---|\n| 1 | 2 |\n'];

async function answers(page, front) {
  await check('reasoning is folded, code coloured and formulas drawn', async () => {
    await fresh(page);
    await say(page, front, 'Explain', saying({ reasoning_content: 'Let me think.' }, ...RICH));
    must((await page.locator('.reasoning').last().getAttribute('open')) === null && (await text(page, '.reasoning summary')) === 'Thoughts', 'not folded');
    must((await page.locator('.message math').count()) === 2, 'not two formulas');
    must((await page.locator('.hl-keyword').allTextContents()).join() === 'def,return', 'not coloured');
    const tall = await page.evaluate(() => document.querySelector('mfrac').getBoundingClientRect().height);
    must(tall > 20, `a fraction of ${tall} px is not drawn`);
  });
  await check('long lines of code wrap on request, in every block and after a reload', async () => {
    const wraps = () => page.evaluate(() => getComputedStyle(document.querySelector('.message .code pre')).whiteSpace);
    must((await wraps()) === 'pre', await wraps());
    await page.locator('.code-wrap').first().click();
    must((await wraps()) === 'pre-wrap', await wraps());
    await page.reload();
    await until('the code', async () => (await page.locator('.message .code pre').count()) > 0);
    must((await wraps()) === 'pre-wrap' && (await page.locator('.code-wrap').first().getAttribute('aria-pressed')) === 'true', await wraps());
    await page.locator('.code-wrap').first().click();
  });
  await check('an error is shown and tried again in its place', async () => {
    await say(page, front, 'Fail', (request, response) => { response.writeHead(500, { 'Content-Type': 'application/json' }); response.end('{"error":{"message":"out of luck"}}'); });
    must((await text(page, '.message .error-box')) === 'out of luck', await text(page, '.message .error-box'));
    const before = await page.locator('.message').count();
    front.chat = saying('Now it works');
    await page.locator('.try-again').click();
    await until('the answer', async () => (await idle(page)) && /Now it works/.test(await body(page)));
    must((await page.locator('.message').count()) === before && (await page.locator('.message .error-box').count()) === 0, 'the error stayed');
  });
  await check('an answer whose connection breaks says so and keeps its text', async () => {
    await say(page, front, 'Break', (request, response) => { response.writeHead(200, { 'Content-Type': 'text/event-stream' }); response.write(chunk({ content: 'Half an' })); setTimeout(() => response.destroy(), 300); });
    must(/Half an/.test(await body(page)) && /Cut off/.test(await body(page)), await body(page));
  });
  await check('two tool calls are shown, and their results are sent together', async () => {
    const call = (index, name) => ({ tool_calls: [{ index, id: `c${index}`, function: { name, arguments: '{"q":1}' } }] });
    await say(page, front, 'Use tools', saying(call(0, 'first'), call(1, 'second')));
    await page.locator('textarea[aria-label="Result of first"]').fill('one');
    await page.locator('textarea[aria-label="Result of second"]').fill('two');
    front.chat = saying('Done with tools');
    await page.locator('button', { hasText: 'Send results' }).click();
    await until('the answer', async () => (await idle(page)) && /Done with tools/.test(await body(page)));
    must(JSON.stringify(front.asked.messages.slice(-2)) === JSON.stringify([{ role: 'tool', tool_call_id: 'c0', content: 'one' }, { role: 'tool', tool_call_id: 'c1', content: 'two' }]), front.asked.messages);
  });
  await check('probabilities colour the tokens, with a legend; pointer, tap and keys show alternatives', async () => {
    const tokens = [['Sure', 0.9], [' maybe', 0.6], [' hm', 0.3], [' odd', 0.05]].map(([token, p]) => ({ token, logprob: Math.log(p),
      top_logprobs: [{ token, logprob: Math.log(p) }, { token: ' other', logprob: Math.log(0.04) }] }));
    await say(page, front, 'Odds', (request, response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.end(tokens.map((t) => chunk({ content: t.token }, { logprobs: { content: [t] } })).join('') + event('[DONE]'));
    });
    await page.locator('button', { hasText: 'Probabilities' }).click();
    const kinds = await page.locator('.tokens .token').evaluateAll((els) => els.map((el) => el.className));
    must(kinds.join() === 'token sure,token good,token fair,token low', kinds);
    must(/under 25 %.*75 % and more.*perplexity/.test(await text(page, '.token-legend')), await text(page, '.token-legend'));
    await page.locator('.tokens .token').nth(3).hover();
    await until('the alternatives', async () => /␣odd\s+5\.0 %/.test(await text(page, '.token-tip')) && (await page.locator('.token-tip .alternative').count()) === 2);
    await page.locator('.tokens').focus();
    await page.keyboard.press('Home');
    await until('the first', async () => /Sure\s+90\.0 %/.test(await text(page, '.token-tip')));
    await page.locator('.tokens .token').nth(2).click();
    await until('the tapped one', async () => /␣hm\s+30\.0 %/.test(await text(page, '.token-tip')));
    await page.locator('button', { hasText: 'Probabilities' }).click();
    must(/Sure maybe hm odd/.test(await body(page)), await body(page));
  });
}

// Streams words, `ms` apart, until the browser goes away or `count` are said.
const drip = (count, ms, word = (i) => `word${i} `) => async (request, response) => {
  let gone = false;
  response.on('close', () => { gone = true; });
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  for (let i = 0; i < count && !gone; i++) {
    response.write(chunk({ content: word(i) }));
    if (ms > 0 || i % 20 === 19) await sleep(ms || 1);
  }
  response.end(gone ? '' : event('[DONE]'));
};

async function streams(page, front) {
  await check('the page scrolls along only while the reader is at the end', async () => {
    await fresh(page);
    const gap = () => page.evaluate(() => { const l = document.querySelector('.chat-log'); return l.scrollHeight - l.scrollTop - l.clientHeight; });
    front.chat = drip(4000, 10, (i) => `line ${i}\n\n`);
    await page.locator('#chat-input').fill('Go on');
    await page.keyboard.press('Enter');
    await until('it scrolls', async () => page.evaluate(() => document.querySelector('.chat-log').scrollTop > 300));
    must((await gap()) < 80, `${await gap()} px from the end`);
    await page.locator('.chat-log').hover();
    await page.mouse.wheel(0, -200);
    await until('it has let go', () => page.locator('.latest').isVisible());
    const [top, size] = await page.evaluate(() => { const l = document.querySelector('.chat-log'); return [l.scrollTop, l.scrollHeight]; });
    await until('more text', async () => page.evaluate((was) => document.querySelector('.chat-log').scrollHeight > was + 200, size));
    must((await page.evaluate(() => document.querySelector('.chat-log').scrollTop)) === top, 'it moved');
    await page.locator('.latest').click();
    await until('the end', async () => (await gap()) < 80 && (await page.locator('.latest').isHidden()));
  });
  await check('another conversation can be read meanwhile; Escape stops the answer that is shown', async () => {
    const other = (await page.locator('.chat-name').all())[1];
    await other.click();
    must(await page.locator('.composer .stop').isHidden(), 'the other one is busy too');
    must((await page.locator('.running').count()) === 1, 'the list does not say that it is being answered');
    await page.locator('.chat-name', { hasText: 'Go on' }).click();
    await page.locator('#chat-input').focus();
    await page.keyboard.press('Escape');
    await until('it stops', () => idle(page));
    must(/Stopped\./.test(await body(page)), (await body(page)).slice(-200));
  });
  await check('an answer of 4000 tokens takes little of a processor', async () => {
    // Time on the processor, not on the clock: others use this machine too.
    const client = await page.context().newCDPSession(page);
    await client.send('Performance.enable', { timeDomain: 'threadTicks' });
    const used = async () => (await client.send('Performance.getMetrics')).metrics.find((m) => m.name === 'ThreadTime').value;
    await fresh(page);
    const before = await used();
    const word = (i) => (i % 400 === 0 ? '\n\n```js\n' : i % 400 === 200 ? '\n```\n\n' : i % 40 === 39 ? '\n' : i % 400 < 200 ? `const a${i} = "b"; ` : `**word** ${i} $x^2$ `);
    await say(page, front, 'Much', drip(4000, 0, word));
    const seconds = (await used()) - before;
    console.log(`# ${seconds.toFixed(2)} s`);
    must(seconds < 10, `${seconds} s`); // some 1 s
    must((await page.locator('.message .code').count()) === 10, 'not all is drawn');
    await client.detach();
  });
  await check('the page outlives an answer of 1 MB in one line, deep nesting and an open fence', async () => {
    await fresh(page);
    await say(page, front, 'Hostile', saying('>'.repeat(500), '\n\n', `${'**a *b '.repeat(3000)}\n\n`, 'word '.repeat(200000), '\n\n```c\n', '/* open'));
    must((await page.locator('.message .code').last().innerText()).includes('/* open'), 'the end is not drawn');
    await say(page, front, 'Still there?', saying('Yes.'));
    must(/Yes\./.test(await body(page)), 'no');
    await menu(page, 'Delete');
  });
}

async function storage(page, front, context) {
  await check('a full storage is reported, and so is its end', async () => {
    // Its own context, and a limit before the first write: Chromium remembers for a while how much room there was.
    const full = await context.browser().newContext(), other = await full.newPage(), client = await full.newCDPSession(other);
    await client.send('Storage.overrideQuotaForOrigin', { origin: front.url, quotaSize: 1000 });
    await open(other, front);
    await say(other, front, 'Too much', saying('x'.repeat(300000)));
    await until('it says so', async () => /storage is full/.test(await other.locator('.chat-notice.bad').first().innerText().catch(() => '')));
    await client.send('Storage.overrideQuotaForOrigin', { origin: front.url });
    await say(other, front, 'Again');
    await until('it is well again', () => other.locator('.chat-notice.bad').first().isHidden());
    await full.close();
  });
  await check('without a storage the page works and says that nothing is kept', async () => {
    const other = await context.newPage();
    await other.addInitScript(() => { IDBFactory.prototype.open = () => { throw new DOMException('denied', 'SecurityError'); }; });
    await open(other, front);
    await until('it says so', async () => /cannot be stored in this browser/.test(await other.locator('.chat-notice.bad').first().innerText().catch(() => '')));
    await say(other, front, 'Hello', saying('Still works'));
    must(/Still works/.test(await body(other)), await body(other));
    await other.close();
  });
  await check('what another tab does shows in this one', async () => {
    const other = await context.newPage();
    await open(other, front);
    await other.locator('#chat-new').click();
    await say(other, front, 'From the other tab');
    await until('it is in the list', async () => (await names(page)).includes('From the other tab'));
    await other.close();
  });
  await check('conversations of version 0.1 are taken over', async () => {
    const old = await page.context().browser().newContext(), other = await old.newPage();
    await other.addInitScript(() => { if (!localStorage.getItem('seeded')) { localStorage.setItem('seeded', '1'); localStorage.setItem('shoal.chats', JSON.stringify([{ id: 'o', at: 1, title: '',
      messages: [{ role: 'user', content: 'Old one' }, { role: 'assistant', content: 'Old answer', streaming: true, timing: {} }] }])); } });
    await open(other, front);
    await until('it is there', async () => (await names(other)).includes('Old one'));
    must(/Cut off: the page was closed/.test(await body(other)), await body(other));
    await until('the old place is empty', async () => other.evaluate(() => localStorage.getItem('shoal.chats') === null));
    await other.reload();
    await until('it is still there', async () => (await names(other)).join() === 'Old one');
    await old.close();
  });
}

async function phone(browser, front) {
  await check('on a phone the composer is in sight, and all can be reached', async () => {
    const context = await browser.newContext({ viewport: { width: 390, height: 844 }, hasTouch: true, reducedMotion: 'reduce' }), page = await context.newPage();
    page.setDefaultTimeout(20000);
    await open(page, front);
    await say(page, front, 'On the phone', saying(`${RICH[0]}${'x'.repeat(400)}\n\n`.repeat(5)));
    const box = await page.locator('#chat-input').boundingBox();
    must(box.y > 500 && box.y + box.height <= 844, box);
    must((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, 'wider than the screen');
    must((await page.evaluate(() => document.documentElement.scrollHeight)) <= 844, 'the page itself scrolls');
    must(await page.locator('.chat-side').isHidden(), 'the list is open');
    await page.locator('button[aria-label="Conversations and settings"]').tap();
    await until('the list', () => page.locator('.chat-name').first().isVisible());
    await page.keyboard.press('Escape');
    await until('it is closed', () => page.locator('.chat-side').isHidden());
    await page.locator('.side-open[aria-label="New conversation"]').tap();
    await until('a new one', async () => (await page.locator('.message').count()) === 0);
    await context.close();
  });
}

const model = (name) => ({ name, state: 'loaded', memory: 0, running: 0, used_at: null });

async function models(page, front) {
  await check('where there are several models, each conversation remembers its own', async () => {
    front.snapshot = { ...SNAPSHOT, models: [model('small'), model('large')] };
    await open(page, front);
    await page.reload(); // a new stream of snapshots
    await until('the choice', () => page.locator('#chat-model').isVisible());
    await fresh(page);
    await page.locator('#chat-model').selectOption('large');
    await say(page, front, 'To the large one');
    must(front.asked.model === 'large', front.asked.model);
    await fresh(page);
    await page.locator('#chat-model').selectOption('small');
    await say(page, front, 'To the small one');
    must(front.asked.model === 'small', front.asked.model);
    await page.reload();
    await until('the choice', () => page.locator('#chat-model').isVisible());
    await page.locator('.chat-name', { hasText: 'To the large one' }).click();
    await until('its model', async () => (await page.inputValue('#chat-model')) === 'large');
    front.snapshot = SNAPSHOT;
  });
}

async function keyboard(page, front) {
  await check('a conversation is had, searched and deleted with the keyboard alone', async () => {
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('n');
    front.chat = saying('By keys');
    await page.keyboard.type('Only keys');
    await page.keyboard.press('Enter');
    await until('the answer', async () => (await idle(page)) && /By keys/.test(await body(page)));
    await page.locator('.chat-log').focus();
    await page.keyboard.press('f');
    await page.keyboard.type('only keys');
    await until('found', async () => (await text(page, '.found')) === '1 conversation');
    await page.keyboard.press('Tab');
    must(await page.evaluate(() => document.activeElement.classList.contains('chat-name')), 'the list is not next');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await until('it is gone', async () => (await text(page, '.found')) === 'Nothing found');
    await page.locator('#chat-search').press('Escape');
  });
}

const SHOWN = `The sum of the first $n$ squares grows with the **cube** of $n$:

$$\\sum_{i=1}^{n} i^2 = \\frac{n(n+1)(2n+1)}{6} \\approx \\int_0^n x^2\\,\\mathrm{d}x = \\left[\\frac{x^3}{3}\\right]_0^n$$

As a matrix, $A = \\begin{pmatrix} 1 & 0 \\\\ \\alpha & \\sqrt{2} \\end{pmatrix}$ costs about $5 a day.

1. Read the numbers
2. Add their squares, as in \`squares.py\`

\`\`\`python
from typing import Iterable

def squares(values: Iterable[int]) -> int:
    """The sum of the squares."""
    return sum(v ** 2 for v in values)  # 1 + 4 + 9
\`\`\`

| n | sum | n³/3 |
|--:|--:|--:|
| 3 | 14 | 9.0 |
| 100 | 338350 | 333333.3 |

> See also [Faulhaber's formula](https://en.wikipedia.org/wiki/Faulhaber%27s_formula).
`;
const LIKELY = SHOWN.slice(0, 220).match(/\s*\S+/g).map((token, i) => ({ token, logprob: -((i * 7) % 11) / 4,
  top_logprobs: [0.5, 1, 2, 3, 4].map((n) => ({ token: ` t${n}`, logprob: -n })) }));

async function shoot(browser, front) {
  for (const [name, scheme, size] of [['dashboard-chat', 'dark', { width: 1360, height: 900 }], ['dashboard-chat-phone', 'light', { width: 390, height: 844 }]]) {
    const context = await browser.newContext({ viewport: size, reducedMotion: 'reduce', colorScheme: scheme }), page = await context.newPage();
    await open(page, front);
    await say(page, front, 'Plan a walk along the coast', saying('With pleasure.'));
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('n');
    await page.locator('#chat-files').setInputFiles([{ name: 'squares.py', mimeType: 'text/plain', buffer: Buffer.from('print(1)\n'.repeat(150)) }]);
    await until('the file', () => page.locator('.files.pending').isVisible());
    await say(page, front, 'How fast does the sum of squares grow?', saying({ reasoning_content: 'The user asks about growth.' }, SHOWN));
    if (name === 'dashboard-chat-phone') {
      await say(page, front, 'How sure are you?', (request, response) => {
        response.writeHead(200);
        response.end(LIKELY.map((t) => chunk({ content: t.token }, { logprobs: { content: [t] } })).join('') + event('[DONE]'));
      });
      await page.locator('button', { hasText: 'Probabilities' }).click();
      await page.locator('.tokens .token').nth(4).click();
    }
    await page.screenshot({ path: path.join(pictures, `${name}.png`) });
    await context.close();
  }
}

async function main() {
  const front = new Front();
  let browser;
  try {
    await front.start();
    front.snapshot = SNAPSHOT;
    browser = await launch();
    const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, reducedMotion: 'reduce', colorScheme: 'dark', acceptDownloads: true });
    const page = await context.newPage(), complaints = [];
    page.setDefaultTimeout(20000);
    page.on('pageerror', (error) => complaints.push(String(error.stack ?? error)));
    page.on('console', (message) => { if (/Content.Security/.test(message.text())) complaints.push(message.text()); });
    await open(page, front);
    for (const part of [branches, lists, files, settings, answers, streams, storage, keyboard, models]) await part(page, front, context);
    await phone(browser, front);
    if (pictures) await shoot(browser, front);
    await check('no script failed and the policy blocked nothing', async () => must(complaints.length === 0, complaints.join('\n')));
  } catch (error) {
    await check('the tests run to their end', async () => { throw error; });
  } finally {
    await browser?.close().catch(() => {});
    await front.stop();
  }
  finish();
}

main();
