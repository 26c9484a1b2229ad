// Puts load on the API: many open streams, tokens per second, time to the first token, memory over many requests.
//   node bench/api_load.mjs URL PID_OF_THE_API streams|first|flood [COUNT]
import fs from 'node:fs';
import http from 'node:http';

const [url, pid, what, given] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
const ticks = 100; // per second, in /proc

const cpu = () => {
  const fields = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / ticks;
};
const resident = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];

// Sends one request and calls onEvent for every event of its stream. Resolves with the status when the response ends.
function ask(body, onEvent = () => {}) {
  return new Promise((resolve, reject) => {
    const request = http.request(`${url}/v1/chat/completions`, { method: 'POST', agent }, (response) => {
      response.on('data', (data) => {
        for (let at = data.indexOf('data: '); at >= 0; at = data.indexOf('data: ', at + 6)) onEvent();
      });
      response.on('end', () => resolve(response.statusCode));
    });
    request.on('error', reject);
    request.end(JSON.stringify({ messages: [{ role: 'user', content: 'Hello!' }], ...body }));
  });
}

async function streams(count) {
  let events = 0;
  const before = resident();
  const all = Array.from({ length: count }, () => ask({ stream: true, max_tokens: 400 }, () => { events += 1; }));
  await new Promise((resolve) => { setTimeout(resolve, 2000); });
  const [cpu0, events0, time0] = [cpu(), events, performance.now()];
  await new Promise((resolve) => { setTimeout(resolve, 5000); });
  const seconds = (performance.now() - time0) / 1000;
  const rate = (events - events0) / seconds;
  const share = (cpu() - cpu0) / seconds;
  console.log(`${count} open streams: ${rate.toFixed(0)} tokens/s, ${(100 * share).toFixed(1)} % of a core, `
    + `${((100 * share * 1000) / rate).toFixed(2)} % per 1,000 tokens/s, ${((resident() - before) / count).toFixed(1)} KiB per stream`);
  process.exit(all.length === count ? 0 : 1);
}

async function first(count) {
  const times = [];
  for (let i = 0; i < count; i += 1) {
    const start = performance.now();
    let seen = 0;
    await ask({ stream: true, max_tokens: 2 }, () => { seen ||= performance.now() - start; });
    times.push(seen);
  }
  const plain = [];
  for (let i = 0; i < count; i += 1) {
    const start = performance.now();
    await new Promise((resolve) => { http.get(`${url}/health/live`, { agent }, (response) => { response.resume(); response.on('end', resolve); }); });
    plain.push(performance.now() - start);
  }
  console.log(`first token after ${median(times).toFixed(2)} ms (median of ${count}), of which ${median(plain).toFixed(2)} ms are the cost of an empty request`);
}

async function flood(count) {
  let sent = 0;
  let bad = 0;
  const marks = [];
  const lane = async () => {
    while (sent < count) {
      sent += 1;
      if (sent % (count / 10) === 0) marks.push(resident());
      if ((await ask({ max_tokens: 2, stream: sent % 2 === 0 })) !== 200) bad += 1;
    }
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: 32 }, lane));
  const seconds = (performance.now() - start) / 1000;
  console.log(`${count} requests to the model, ${(count / seconds).toFixed(0)} per second, ${bad} failed; resident KiB after each tenth: ${marks.join(' ')}`);
  process.exit(bad === 0 ? 0 : 1);
}

await { streams, first, flood }[what](Number(given ?? 1000));
process.exit(0);
