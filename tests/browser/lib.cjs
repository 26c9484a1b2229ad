// Helpers for tests in a browser. Prints TAP.
const net = require('node:net');
const path = require('node:path');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const count = { tests: 0, failures: 0 };

async function check(claim, body) {
  count.tests++;
  try {
    await body();
    console.log(`ok ${count.tests} - ${claim}`);
  } catch (error) {
    count.failures++;
    console.log(`not ok ${count.tests} - ${claim}`);
    console.log(String(error.stack ?? error).split('\n').slice(0, 12).map((line) => `# ${line}`).join('\n'));
  }
}

function must(truth, what) {
  if (!truth) throw new Error(what);
}

// Polls until the answer is true.
async function until(what, ask, ms = 30000) {
  const end = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await sleep(60);
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

const text = (page, selector) => page.locator(selector).first().textContent();

// A picture of the page as it is, if SHOAL_SCREENSHOTS names a folder.
async function picture(page, name, size, scheme, full = false) {
  const folder = process.env.SHOAL_SCREENSHOTS;
  if (!folder) return;
  await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
  await page.setViewportSize(size);
  await sleep(700);
  await page.screenshot({ path: path.join(folder, name), fullPage: full });
}

module.exports = { sleep, count, check, must, until, freePort, text, picture };
