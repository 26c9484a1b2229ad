// Messages that servers are known to parse in different ways go to this server and to Node's, which has a parser of its
// own. What Node refuses must be refused here too, and both must see the same number of requests in what both accept.
import http from 'node:http';
import net from 'node:net';

const port = Number(process.argv[2]);
const host = 'Host: a\r\n';
const post = 'POST /tokenize HTTP/1.1\r\n' + host;
const next = 'GET /health/live HTTP/1.1\r\n' + host + '\r\n';
const messages = {
  'a plain request': next,
  'two requests': next + next,
  'a body with a length': `${post}Content-Length: 5\r\n\r\nhello${next}`,
  'a body in chunks': `${post}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n${next}`,
  'chunks with extensions and trailers': `${post}Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n${next}`,
  'a length and chunks': `${post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${next}`,
  'chunks and a length': `${post}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n${next}`,
  'two lengths': `${post}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello${next}`,
  'a list of lengths': `${post}Content-Length: 5, 5\r\n\r\nhello${next}`,
  'a length with a sign': `${post}Content-Length: +5\r\n\r\nhello${next}`,
  'a negative length': `${post}Content-Length: -5\r\n\r\nhello${next}`,
  'a hexadecimal length': `${post}Content-Length: 0x5\r\n\r\nhello${next}`,
  'an empty length': `${post}Content-Length:\r\n\r\n${next}`,
  'a length beyond 64 bits': `${post}Content-Length: 99999999999999999999999\r\n\r\nhello${next}`,
  'a space before the colon': `${post}Content-Length : 5\r\n\r\nhello${next}`,
  'a space before chunked\'s colon': `${post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${next}`,
  'a folded header': `${post}X: a\r\n b\r\n\r\n${next}`,
  'a folded length': `${post}Content-Length:\r\n 5\r\n\r\nhello${next}`,
  'an unknown coding': `${post}Transfer-Encoding: gzip\r\n\r\n${next}`,
  'chunked not last': `${post}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n${next}`,
  'chunked twice': `${post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${next}`,
  'a chunk of a negative size': `${post}Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n${next}`,
  'a chunk size with 0x': `${post}Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n${next}`,
  'a chunk size beyond 64 bits': `${post}Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n${next}`,
  'a chunk longer than its size': `${post}Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n${next}`,
  'a chunk that ends with a bare line feed': `${post}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n${next}`,
  'bare line feeds': `GET /health/live HTTP/1.1\nHost: a\n\n${next}`,
  'a bare carriage return': `GET /health/live HTTP/1.1\r\n${host}X: a\rY: b\r\n\r\n${next}`,
  'a zero byte in a value': `GET /health/live HTTP/1.1\r\n${host}X: a\0b\r\n\r\n${next}`,
  'a zero byte in a name': `GET /health/live HTTP/1.1\r\n${host}X\0Y: b\r\n\r\n${next}`,
  'no host': `GET /health/live HTTP/1.1\r\n\r\n${next}`,
  'two hosts': `GET /health/live HTTP/1.1\r\n${host}${host}\r\n${next}`,
  'a space in the target': `GET /health/live x HTTP/1.1\r\n${host}\r\n${next}`,
  'a version of the future': `GET /health/live HTTP/9.9\r\n${host}\r\n${next}`,
  'no version': `GET /health/live\r\n${host}\r\n${next}`,
  'empty lines before the request': `\r\n\r\n${next}`,
  'HTTP/1.0 with chunks': `POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${next}`,
  'a header without a name': `GET /health/live HTTP/1.1\r\n${host}: x\r\n\r\n${next}`,
  'a header without a colon': `GET /health/live HTTP/1.1\r\n${host}nonsense\r\n\r\n${next}`,
  'a method in lower case': `get /health/live HTTP/1.1\r\n${host}\r\n${next}`,
};

// The statuses of all responses to the bytes, on one connection.
function statuses(to, bytes) {
  return new Promise((resolve) => {
    let said = '';
    const socket = net.connect(to, '127.0.0.1', () => socket.write(bytes, 'latin1'));
    const done = () => { socket.destroy(); resolve([...said.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]))); };
    socket.on('data', (data) => { said += data.toString('latin1'); });
    socket.on('close', done);
    socket.on('error', done);
    setTimeout(done, 400);
  });
}

const refusals = (list) => list.filter((status) => [400, 413, 417, 431, 501, 505].includes(status)).length;
const other = http.createServer((request, response) => { request.resume(); request.on('end', () => response.end('ok')); });
await new Promise((resolve) => { other.listen(0, '127.0.0.1', resolve); });

let count = 0;
let failures = 0;
for (const [name, bytes] of Object.entries(messages)) {
  const [ours, theirs] = await Promise.all([statuses(port, bytes), statuses(other.address().port, bytes)]);
  const strict = refusals(ours) > 0 || refusals(theirs) === 0;
  const same = refusals(ours) > 0 || ours.length === theirs.length;
  count += 1;
  if (!strict || !same) failures += 1;
  console.log(`${strict && same ? 'ok' : 'not ok'} ${count} - ${name}: ${refusals(ours) > 0 ? 'refused' : `${ours.length} answers`}`);
  if (!strict || !same) console.log(`# here ${ours.join(' ')}, Node ${theirs.join(' ')}`);
}
console.log(`1..${count}`);
process.exit(failures === 0 ? 0 : 1);
