// The controls of the dashboard, in Chromium: a launched cluster on this machine, and a server with several models.
// WORK is a folder with `models`, HF_ENDPOINT a hub with org/demo and org/big (tests/store/lib.sh).
const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { check, finish, freePort, launch, must, sleep, tally, until } = require('./harness.cjs');

const work = process.env.WORK, key = 'open-sesame-4fZq81', hub = process.env.HF_ENDPOINT;
const wide = { width: 1440, height: 900 }, phone = { width: 390, height: 844 };
const text = (page, selector) => page.locator(selector).first().textContent();

// A picture of the page as it is, if SHOAL_SCREENSHOTS names a folder.
async function picture(page, name, size, scheme, full) {
  const folder = process.env.SHOAL_SCREENSHOTS;
  if (!folder) return;
  await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
  await page.setViewportSize(size);
  await sleep(700);
  await page.screenshot({ path: path.join(folder, name), fullPage: full });
}

class Server {
  constructor(name) { this.name = name; }

  async start(...args) {
    this.port = await freePort();
    this.url = `http://127.0.0.1:${this.port}`;
    const log = fs.openSync(path.join(work, `${this.name}.log`), 'w');
    this.child = spawn(process.env.SHOAL, [...args, '--port', String(this.port)], { cwd: work, stdio: ['ignore', log, log] });
    await until(`${this.name} is ready`, () => this.answers(), 40000);
  }

  async answers() {
    try { return (await fetch(`${this.url}/health`)).ok; } catch { return false; }
  }

  async stop() {
    if (this.child === undefined || this.child.exitCode !== null) return;
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), 30000);
    await new Promise((resolve) => this.child.on('exit', resolve));
    clearTimeout(timer);
  }
}

async function shots(page, name, full) {
  for (const scheme of ['dark', 'light']) {
    await picture(page, `${name}-${scheme}.png`, wide, scheme, full);
    await picture(page, `${name}-phone-${scheme}.png`, phone, scheme, full);
  }
  await page.setViewportSize(wide);
}

const dialog = (page, label) => page.locator('#operate button', { hasText: label }).last();
const said = (page) => text(page, '#operate .notice');

async function cluster(page, server) {
  await check('the dialog has the hosts, and nothing to remove at rank 0', async () => {
    await page.goto(`${server.url}/dashboard`);
    await until('it asks for a key', () => page.locator('#key-dialog').isVisible());
    await page.fill('#api-key', key);
    await page.keyboard.press('Enter');
    await until('three ranks', async () => (await page.locator('.node').count()) === 3);
    await page.locator('#manage').click();
    await until('the hosts', async () => (await page.locator('.host-list li').count()) === 3);
    const rows = await page.locator('.host-list li').allTextContents();
    must(/serves the API/.test(rows[0]) && /Remove/.test(rows[1]) && /Remove/.test(rows[2]), rows.join());
    await shots(page, 'manage');
  });
  await check('a host that cannot be added is reported in the words of the launcher', async () => {
    await page.fill('#new-host', 'h3;touch x');
    await page.keyboard.press('Enter');
    await until('the error', async () => /a host is a name or an address/.test(await text(page, '#operate .error-box')));
    await page.fill('#new-host', 'nowhere.invalid');
    await page.keyboard.press('Enter');
    await until('the failure', async () => /Adding nowhere.invalid failed/.test(await said(page)));
  });
  await check('removing a rank is asked for, can be cancelled, and done', async () => {
    const row = page.locator('.host-list li').nth(2);
    await row.locator('button', { hasText: 'Remove' }).click();
    await row.locator('button', { hasText: 'Cancel' }).click();
    must((await page.locator('.host-list li').count()) === 3, 'it was removed');
    await row.locator('button', { hasText: 'Remove' }).click();
    await row.locator('button.danger').click();
    await until('it has left', async () => /rank 2 on .* has left: 2 ranks/.test(await said(page)), 40000);
    await until('two hosts', async () => (await page.locator('.host-list li').count()) === 2);
  });
  await check('a restart is asked for, and the page outlives it', async () => {
    await dialog(page, 'Restart').click();
    await dialog(page, 'Restart').click();
    await until('it runs', async () => /Restarting/.test(await said(page)) || /renewed/.test(await said(page)));
    await until('it is done', async () => /renewed: all 2 ranks are ready/.test(await said(page)), 40000);
  });
  await check('drain shows in the banner, and ends', async () => {
    await dialog(page, 'Drain').click();
    await dialog(page, 'Drain').click();
    await until('the banner', async () => /being drained/.test(await text(page, '#banner')));
    await dialog(page, 'Take requests again').click();
    await until('no banner', async () => !(await page.locator('#banner').isVisible()));
    await page.locator('#operate button', { hasText: 'Close' }).click();
  });
}

async function disk(page) {
  await check('the card has parameters, quantization, parsers, sampling and the template', async () => {
    await page.evaluate(() => { location.hash = 'model'; });
    await until('the card', async () => /Parameters/.test(await text(page, '#model-card')));
    const card = await text(page, '#model-card');
    for (const word of ['15.74 M', 'affine, 4 bits', 'hermes', 'think', 'temperature 0.7', 'KV per token']) must(card.includes(word), card);
    await page.locator('#template summary').click();
    await until('the template', async () => (await text(page, '#template code')).includes('im_start'));
  });
  await check('a model is downloaded, with its progress, and listed', async () => {
    await page.fill('#pull-name', 'org/demo');
    await page.keyboard.press('Enter');
    await until('the row', async () => /org\/demo/.test(await text(page, '#store tbody').catch(() => '')));
    const row = await text(page, '#store tbody tr');
    must(/MiB.*4 bits.*yes/.test(row), row);
    must(await page.locator('#store .error-box').isHidden(), await text(page, '#store .error-box'));
  });
  await check('a download can be cancelled', async () => {
    await fetch(`${hub}/set`, { method: 'POST', body: JSON.stringify({ files: { rate: 400000 } }) });
    await page.fill('#pull-name', 'org/big');
    await page.keyboard.press('Enter');
    await until('progress', async () => /org\/big: .* of 36.* MiB, \d+ %/.test(await text(page, '.pull')));
    await shots(page, 'model', true);
    await page.locator('#pull-cancel').click();
    await until('it says so', async () => /was cancelled/.test(await text(page, '#store .error-box')));
    await until('what has come is listed', async () => /org\/big.*incomplete/.test(await text(page, '#store tbody')));
  });
  await check('what the hub refuses is shown', async () => {
    await page.fill('#pull-name', 'org/none');
    await page.keyboard.press('Enter');
    await until('the error', async () => /org\/none/.test(await text(page, '#store .error-box')));
    await page.fill('#pull-name', '<b>none</b>');
    await page.keyboard.press('Enter');
    await until('the error', async () => /<b>none<\/b>. is not the name of a model/.test(await text(page, '#store .error-box')));
  });
}

async function several(page, server) {
  const row = (name) => page.locator('#models tbody tr', { has: page.locator('th', { hasText: name }) });
  await check('models are loaded, kept and unloaded', async () => {
    await page.goto(`${server.url}/dashboard#model`);
    await until('both', async () => (await page.locator('#models tbody tr').count()) === 2);
    await row('second').locator('button', { hasText: 'Load' }).click();
    await until('loaded', async () => /secondloaded/.test(await row('second').textContent()));
    await row('second').locator('button', { hasText: 'Keep loaded' }).click();
    await row('second').locator('th button').click();
    await until('its card', async () => /second.*15.74 M/.test(await text(page, '#model-card')));
    await until('kept', async () => /secondloaded, kept/.test(await row('second').textContent()));
    await shots(page, 'models', true);
    await row('second').locator('button', { hasText: 'Unload' }).click();
    await until('unloaded', async () => !/secondloaded/.test(await row('second').textContent()));
  });
  await check('without a launcher and without --manage-models, the page says why', async () => {
    must(/--manage-models/.test(await text(page, '#store')), await text(page, '#store'));
    await page.evaluate(() => { location.hash = 'overview'; });
    await page.locator('#manage').click();
    await until('the reason', async () => /no launcher/.test(await text(page, '#operate')));
    must((await page.locator('#operate button', { hasText: 'Restart' }).count()) === 0, 'there is a restart');
  });
  await check('nothing is wider than a phone', async () => {
    await page.setViewportSize(phone);
    for (const view of ['overview', 'model']) {
      await page.evaluate((name) => { location.hash = name; }, view);
      const width = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.querySelector('#operate').scrollWidth));
      must(width <= 390, `${view} is ${width} wide`);
    }
  });
}

async function main() {
  const launched = new Server('launched'), models = new Server('models'), complaints = [];
  let browser;
  try {
    await launched.start('launch', '--ranks', '3', '--state-dir', path.join(work, 'state'), '--manage-models', '--grace', '2',
      '--rejoin-after', '1', '--api-key', key);
    browser = await launch();
    const context = await browser.newContext({ viewport: wide, reducedMotion: 'reduce', colorScheme: 'dark' });
    const page = await context.newPage();
    page.setDefaultTimeout(20000);
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => { if (/Content.Security/.test(message.text())) complaints.push(message.text()); });
    await cluster(page, launched);
    await disk(page);
    await models.start('serve', '--models-dir', path.join(work, 'models'));
    await several(page, models);
    await check('no script failed and the policy blocked nothing', async () => must(complaints.length === 0, complaints.join('\n')));
  } catch (error) {
    await check('the tests run to their end', async () => { throw error; });
  } finally {
    await browser?.close().catch(() => {});
    await Promise.all([launched.stop(), models.stop()]);
  }
  if (tally.failures > 0)
    for (const name of ['launched', 'models']) console.log(spawnSync('tail', ['-n', '15', path.join(work, `${name}.log`)]).stdout.toString().replace(/^/gm, '# '));
  finish();
}

main();
