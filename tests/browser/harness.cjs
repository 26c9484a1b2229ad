// What tests in a browser share: claims in TAP, waits with limits, and a front that passes requests on to a real
// `shoal api` without an engine, so that pages and their security policy are those of the program, but answers chats
// with what a test wants to be said.
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { chromium } = require('playwright-core');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const tally = { tests: 0, failures: 0 };

async function check(claim, body) {
  tally.tests++;
  try {
    await body();
    console.log(`ok ${tally.tests} - ${claim}`);
  } catch (error) {
    tally.failures++;
    console.log(`not ok ${tally.tests} - ${claim}`);
    console.log(String(error.stack ?? error).split('\n').slice(0, 12).map((line) => `# ${line}`).join('\n'));
  }
}

function must(truth, what) {
  if (!truth) throw new Error(typeof what === 'string' ? what : JSON.stringify(what));
}

// Polls until the answer is true.
async function until(what, ask, ms = 30000) {
  const end = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await sleep(50);
  }
}

const listening = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

async function freePort() {
  const server = http.createServer(), port = await listening(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

// Chats are answered by this.chat(body, response, request). With this.snapshot set, the page gets that instead of the
// state of the server, which has no engine.
class Front {
  async start() {
    this.work = fs.mkdtempSync(path.join(os.tmpdir(), 'shoal-chat-'));
    const port = await freePort(), back = `http://127.0.0.1:${port}`, log = fs.openSync(path.join(this.work, 'api.log'), 'w');
    this.child = spawn(process.env.SHOAL, ['api', '--socket', path.join(this.work, 'none.sock'), '--port', String(port)],
      { stdio: ['ignore', log, log] });
    await until('the API answers', async () => { try { return (await fetch(`${back}/dashboard`)).ok; } catch { return false; } }, 60000);
    this.server = http.createServer((request, response) => {
      response.on('error', () => {});
      if (request.url === '/v1/chat/completions') this.converse(request, response);
      else if (request.url === '/metrics/stream' && this.snapshot) this.report(response);
      else this.pass(port, request, response);
    });
    this.url = `http://127.0.0.1:${await listening(this.server)}`;
  }

  pass(port, request, response) {
    const onward = http.request({ host: '127.0.0.1', port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  }

  report(response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    const send = () => response.write(event(this.snapshot)), timer = setInterval(send, 500);
    response.on('close', () => clearInterval(timer));
    send();
  }

  async converse(request, response) {
    let text = '';
    for await (const part of request) text += part;
    this.asked = JSON.parse(text);
    this.count = (this.count ?? 0) + 1;
    await this.chat(this.asked, response, request);
  }

  async stop() {
    this.child.kill('SIGTERM');
    this.server.closeAllConnections();
    this.server.close();
    await Promise.race([new Promise((resolve) => this.child.on('exit', resolve)), sleep(10000)]);
    this.child.kill('SIGKILL');
    fs.rmSync(this.work, { recursive: true, force: true });
  }
}

const event = (data) => `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
const chunk = (delta, more = {}) => event({ choices: [{ index: 0, delta, finish_reason: null, ...more }] });

// An answer that says these texts, one chunk each, and ends.
const saying = (...texts) => (body, response) => {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  for (const text of texts) response.write(typeof text === 'string' ? chunk({ content: text }) : chunk(text));
  response.end(chunk({}, { finish_reason: 'stop' }) + event('[DONE]'));
};

const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });

function finish() {
  console.log(`1..${tally.tests}`);
  process.exit(tally.failures === 0 ? 0 : 1);
}

module.exports = { Front, check, chunk, event, finish, freePort, launch, must, saying, sleep, tally, until };
