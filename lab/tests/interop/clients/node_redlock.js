// needs: redlock@5.0.0-beta.2 ioredis@5.4.1
// Acquires and releases one lock of node-redlock: NODE_REDLOCK URL,URL,... NAME CYCLES [TRIES].
// Prints the begin and the end of each hold, in nanoseconds of the monotonic clock. On a machine
// that was never suspended this clock equals CLOCK_BOOTTIME.
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const [urls, name, cycles, tries] = process.argv.slice(2);
const masters = urls.split(",").map((url) => new Redis(url));
// An acquire that wins too few masters keeps their votes until its last try. Its own value on these
// masters refuses its next try. So an acquire with unlimited tries could block all parties forever,
// with its value on all masters and without a hold.
const redlock = new Redlock(masters, { retryCount: Number(tries ?? 1) - 1 });
// A master that refuses does not fail the acquire.
redlock.on("error", () => {});

const TIMEOUT_MS = 60000;

async function acquire() {
  for (const begun = Date.now(); Date.now() - begun < TIMEOUT_MS; ) {
    try {
      return await redlock.acquire([name], 30000);
    } catch (refused) {
      await new Promise((done) => setTimeout(done, 5 + 20 * Math.random()));
    }
  }
  throw new Error("the lock is never granted");
}

async function main() {
  for (let cycle = 0; cycle < Number(cycles); cycle++) {
    const lock = await acquire();
    const granted = process.hrtime.bigint();
    const releasing = process.hrtime.bigint();
    await lock.release();
    process.stdout.write(`${granted} ${releasing}\n`);
    // This lets the other party acquire.
    await new Promise((done) => setTimeout(done, 1));
  }
  for (const master of masters) master.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
