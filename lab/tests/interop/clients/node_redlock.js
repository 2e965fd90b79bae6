// needs: redlock@5.0.0-beta.2 ioredis@5.4.1
// Takes one lock of node-redlock so many times: NODE_REDLOCK URL,URL,... NAME CYCLES. Tells when it held, in ns of a clock that
// goes with CLOCK_BOOTTIME on a machine that was not suspended.
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const [urls, name, cycles] = process.argv.slice(2);
const masters = urls.split(",").map((url) => new Redis(url));
// With its own retries it was seen to hold nothing while its value stood on all five masters until that ended. Why was not looked
// into; each try here is one of its own.
const redlock = new Redlock(masters, { retryCount: 0 });

async function acquire() {
  for (;;) {
    try {
      return await redlock.acquire([name], 30000);
    } catch (refused) {
      await new Promise((done) => setTimeout(done, 5 + 20 * Math.random()));
    }
  }
}

async function main() {
  for (let cycle = 0; cycle < Number(cycles); cycle++) {
    const lock = await acquire();
    const granted = process.hrtime.bigint();
    const releasing = process.hrtime.bigint();
    await lock.release();
    process.stdout.write(`${granted} ${releasing}\n`);
    // So that others have their turns.
    await new Promise((done) => setTimeout(done, 1));
  }
  for (const master of masters) master.disconnect();
}

main().catch((trouble) => {
  console.error(trouble);
  process.exit(1);
});
