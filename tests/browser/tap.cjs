// Checks of the tests in a browser. Prints TAP.
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let tests = 0, failures = 0;

async function check(claim, body) {
  tests++;
  try {
    await body();
    console.log(`ok ${tests} - ${claim}`);
  } catch (error) {
    failures++;
    console.log(`not ok ${tests} - ${claim}`);
    console.log(String(error.stack ?? error).split('\n').slice(0, 12).map((line) => `# ${line}`).join('\n'));
  }
}

function must(truth, what) {
  if (!truth) throw new Error(what);
}

// Polls until the answer is true.
async function until(what, ask, ms = 20000) {
  const end = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await sleep(60);
  }
}

// Prints the plan; true if all checks passed.
function passed() {
  console.log(`1..${tests}`);
  return failures === 0;
}

module.exports = { check, must, passed, sleep, until };
