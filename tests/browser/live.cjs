// The dashboard with groups and states that one machine does not have, from an API that is made up (scenes.cjs).
const { check, finish, launch, must, until } = require('./harness.cjs');
const { Scenes, LONG_MODEL, LONG_HOST } = require('./scenes.cjs');

const VIEWS = ['overview', 'chat', 'requests', 'model'];
let loads = 0;
const text = (page, selector) => page.locator(selector).first().textContent();
const gauge = (name) => `.gauge[aria-label="${name}"]`;

async function show(page, scenes, scene, view = 'overview') {
  scenes.set(scene);
  await page.goto(`${scenes.url}/dashboard?${++loads}#${view}`); // with the same address the page would not be loaded
  await until('the page has a snapshot', async () => (await text(page, '#state')) !== 'connecting');
}

const lineOf = (page, name) => page.locator(`${gauge(name)} .line`).first().getAttribute('d');
const pointsOf = async (page, name) => ((await lineOf(page, name)) ?? '').split(/[ML]/).length - 1;

async function plots(page, scenes) {
  await check('plots are full when the page is loaded, of 5, 15 and 60 minutes', async () => {
    await show(page, scenes, {});
    for (const [span, least, most] of [[300, 55, 63], [900, 170, 183], [3600, 700, 723]]) {
      await page.locator(`.segments button[data-s="${span}"]`).click();
      await until(`points of ${span} s`, async () => {
        const count = await pointsOf(page, 'Generated tokens');
        return count >= least && count <= most;
      });
    }
  });
  await check('a reload keeps the span and shows the same points', async () => {
    const before = await pointsOf(page, 'Generated tokens');
    await page.reload();
    await until('the points', async () => Math.abs((await pointsOf(page, 'Generated tokens')) - before) <= 3);
    must((await page.locator('.segments button[data-s="3600"]').getAttribute('aria-pressed')) === 'true', 'another span');
  });
  await check('an outage is a gap in the line', async () => {
    await show(page, scenes, { gap: 1800 });
    await until('two pieces', async () => ((await lineOf(page, 'Generated tokens')) ?? '').split('M').length === 3);
    await page.locator('.segments button[data-s="300"]').click();
  });
  await check('several models are told apart', async () => {
    await show(page, scenes, { models: [LONG_MODEL, 'small'] });
    await until('the rate of the first', async () => parseFloat((await text(page, '.gauge .big')).replace(',', '')) > 1000);
    scenes.asked.length = 0;
    await page.locator('#live select').selectOption('small');
    await until('the rate of the other', async () => {
      const value = parseFloat((await text(page, '.gauge .big')).replace(',', ''));
      return value > 100 && value < 400;
    });
    await until('its history', async () => scenes.asked.includes('small') && (await pointsOf(page, 'Generated tokens')) > 50);
  });
  await check('a latency without new requests is dimmed and has its age, and is gone in the end', async () => {
    await show(page, scenes, { idleFor: 90 });
    await until('dimmed', async () => page.locator(`${gauge('Time to first token')}.stale`).isVisible());
    must(/ms median · 1 min \d+ s ago/.test(await text(page, `${gauge('Time to first token')} .unit`)), 'no age');
    must((await page.locator(`${gauge('Generated tokens')}.stale`).count()) === 0, 'a rate of now is dimmed');
    await show(page, scenes, { idleFor: 900 });
    await until('gone', async () => (await text(page, `${gauge('Inter-token latency')} .big`)) === '–');
    must((await text(page, `${gauge('Inter-token latency')} .side .num`)) === '–', 'p95 is still shown');
  });
  await check('the last 40 generations have a bar each', async () => {
    await show(page, scenes, {});
    await until('bars', async () => (await page.locator('.spark rect').count()) === 40);
    must(/median59\.0 tok\/s/.test(await text(page, '.generations')), await text(page, '.generations'));
  });
}

async function ranks(page, scenes) {
  await check('links and ranks have their RDMA devices, and the group its peak', async () => {
    await show(page, scenes, {});
    await until('three ranks', async () => (await page.locator('.node.online').count()) === 3);
    must(/RDMA, peak 12\.1 GB\/s/.test(await text(page, '#cluster header')), await text(page, '#cluster header'));
    must(/RDMA rdma_en3, rdma_en4/.test(await text(page, '.node')), await text(page, '.node'));
    must(/RDMA rdma_en3 – rdma_en2/.test(await text(page, '.cluster')), await text(page, '.cluster'));
    must(/RDMA devicerdma_en3, rdma_en4/.test(await text(page, '.rank')), await text(page, '.rank'));
    await page.locator('#cluster summary', { hasText: 'Show as table' }).click();
    must((await page.locator('#cluster tbody tr').count()) === 3, 'not three links in the table');
  });
  await check('a rank that the group does without is red, with its host and time', async () => {
    await show(page, scenes, { absent: [2] });
    await until('lost', async () => /studio-2.*lost since \d\d:\d\d:\d\d/.test((await page.locator('.node.lost').textContent().catch(() => ''))));
    must(/lost since .*, for 2 min/.test(await text(page, '.rank.lost')), await text(page, '.rank.lost'));
    must(/without rank 2 on studio-2, lost since/.test(await text(page, '#banner')), await text(page, '#banner'));
  });
  await check('a lost group says which rank, and that the model is unavailable', async () => {
    await show(page, scenes, { absent: [1], ready: false });
    await until('lost', async () => (await page.locator('.node.lost').count()) === 1);
    must((await text(page, '#state')) === 'model unavailable', await text(page, '#state'));
    must(/Lost: rank 1 on studio-1 since/.test(await text(page, '#banner')), await text(page, '#banner'));
    must((await page.locator('.link.lost').count()) === 2, 'its links are not marked');
  });
  await check('loading ranks have their progress', async () => {
    const at = (rank, done, rate, linked) => ({ rank, done: done * 2 ** 30, total: 64 * 2 ** 30, rate: rate * 2 ** 20, linked });
    await show(page, scenes, { loading: [at(0, 64, 900, false), at(1, 22, 920, true), at(2, 4.9, 110, false)] });
    await until('three', async () => (await page.locator('.node.loading').count()) === 3);
    const words = await page.locator('.node.loading').allTextContents();
    must(/loading 34 %/.test(words[1]) && /loading 7 %of 64.0 GiB, 110 MiB\/s/.test(words[2]), words.join('\n'));
    const [full, part] = await page.locator('.node .share').evaluateAll((bars) => bars.map((bar) => Number(bar.getAttribute('width'))));
    must(part > 0.3 * full && part < 0.4 * full, `bars of ${full} and ${part}`);
  });
}

async function requests(page, scenes) {
  await check('a cancelled request has its own colour and count and is no error', async () => {
    await show(page, scenes, {}, 'requests');
    await until('rows', async () => (await page.locator('.chip.cancelled').count()) === 2);
    must((await text(page, '.figure.cancelled')) === 'Cancelled44', await text(page, '.figure.cancelled'));
    must((await text(page, '.figure.bad')) === 'Errors4', await text(page, '.figure.bad'));
    must(!/cancelled/.test(await text(page, '.log')), 'it is in the log of errors');
    const colours = await page.locator('.requests .chip').evaluateAll((chips) =>
      [...new Set(chips.map((chip) => `${chip.textContent} ${getComputedStyle(chip).color}`))]);
    must(new Set(colours.map((c) => c.replace(/^(error|timeout)/, 'bad'))).size === 4, colours.join());
  });
}

// What is wider than the page or than its box, in the whole page.
function tooWide() {
  const wide = document.documentElement.scrollWidth > innerWidth ? [`the page is ${document.documentElement.scrollWidth} wide`] : [];
  for (const el of document.querySelectorAll('.reading, .figure, .top, .card > header, button'))
    if (el.offsetParent !== null && el.scrollWidth > el.clientWidth + 1) wide.push(`${el.className}: ${el.textContent.slice(0, 60)}`);
  for (const node of document.querySelectorAll('.node')) {
    const box = node.querySelector('.box').getBoundingClientRect();
    for (const line of node.querySelectorAll('text'))
      if (line.getBoundingClientRect().right > box.right) wide.push(`out of its box: ${line.textContent}`);
  }
  for (const id of ['theme', 'key-button', 'state']) {
    const box = document.getElementById(id).getBoundingClientRect();
    if (box.right > innerWidth || box.left < 0) wide.push(`${id} is out of sight`);
  }
  return wide;
}

async function sizes(page, scenes) {
  for (const width of [1440, 1024, 700, 390, 360])
    await check(`long names and large numbers fit at ${width} px`, async () => {
      must(LONG_MODEL.length === 120 && LONG_HOST.length === 60, 'the names are not long');
      await page.setViewportSize({ width, height: width < 700 ? 780 : 900 });
      for (const view of VIEWS) {
        await show(page, scenes, { models: [LONG_MODEL, 'small'], absent: view === 'model' ? [2] : [] }, view);
        if (view === 'overview') await until('nodes', async () => (await page.locator('.node').count()) === 3);
        if (view === 'requests') await until('rows', async () => (await page.locator('.requests tbody tr').count()) === 12);
        const wide = await page.evaluate(tooWide);
        must(wide.length === 0, `${view}: ${wide.join('\n')}`);
      }
    });
  await check('on a phone the tabs and the composer are in sight, links are drawn and requests are cards', async () => {
    await show(page, scenes, {}, 'chat');
    const tabs = await page.locator('.top nav').boundingBox(), composer = await page.locator('.composer').boundingBox();
    must(tabs.y + tabs.height === 780 && tabs.x === 0 && tabs.width === 360, `tabs at ${JSON.stringify(tabs)}`);
    must(composer.y > 0 && composer.y + composer.height <= tabs.y, `composer at ${JSON.stringify(composer)}`);
    await page.locator('.top nav a', { hasText: 'Overview' }).click();
    await until('links', async () => (await page.locator('.cluster g:not([visibility="hidden"]) > .link').count()) === 3);
    await page.locator('.top nav a', { hasText: 'Requests' }).click();
    const card = await page.locator('.requests tbody tr').first().evaluate((row) => [getComputedStyle(row).display, row.clientHeight]);
    must(card[0] === 'grid' && card[1] > 90, card.join());
  });
  await page.setViewportSize({ width: 1440, height: 900 });
}

// Texts whose contrast to what is behind them is below 4.5 (WCAG AA).
function tooFaint() {
  const channel = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const luminance = (colours) => { // painted one over the other
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  };
  const faint = [];
  for (const el of document.querySelectorAll('.soft, .chip, .unit, .big, small, td, th, dt, dd, #banner, nav a, h2, h3, h4, .log span, time')) {
    if (el.offsetParent === null) continue;
    const layers = [];
    for (let at = el; at !== null; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    const back = luminance(layers), front = luminance([...layers, getComputedStyle(el).color]);
    const ratio = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${el.className}: ${el.textContent.slice(0, 40)}`);
  }
  return faint;
}

async function looks(page, scenes) {
  for (const colorScheme of ['dark', 'light'])
    await check(`every text can be read: ${colorScheme}`, async () => {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      for (const view of ['overview', 'requests', 'model']) {
        await show(page, scenes, { absent: [2], idleFor: 90 }, view);
        await until('drawn', async () => page.locator(view === 'requests' ? '.requests tr td' : view === 'model' ? '.facts dd' : '.stale').first().isVisible());
        const faint = await page.evaluate(tooFaint);
        must(faint.length === 0, `${view}: ${faint.join('\n')}`);
      }
    });
  await check('nothing moves for those who want no motion', async () => {
    await show(page, scenes, {});
    await until('traffic', async () => (await page.locator('.link.flowing').count()) > 0);
    const moves = await page.evaluate(() => document.getAnimations().filter((a) => a.effect.getComputedTiming().iterations === Infinity).length);
    must(moves === 0, `${moves} animations`);
  });
}

async function main() {
  const scenes = new Scenes();
  let browser;
  try {
    await scenes.start();
    browser = await launch();
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, reducedMotion: 'reduce', colorScheme: 'dark' });
    const complaints = [];
    page.setDefaultTimeout(15000);
    page.on('pageerror', (error) => complaints.push(String(error.stack)));
    await plots(page, scenes);
    await ranks(page, scenes);
    await requests(page, scenes);
    await sizes(page, scenes);
    await looks(page, scenes);
    await check('no script failed', async () => must(complaints.length === 0, complaints.join('\n')));
  } catch (error) {
    await check('the tests run to their end', async () => { throw error; });
  } finally {
    await browser?.close().catch(() => {});
    scenes.stop();
  }
  finish();
}

main();
