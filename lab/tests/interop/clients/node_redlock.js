// needs: redlock@5.0.0-beta.2 ioredis@5.4.1
// Takes one lock of node-redlock so many times: NODE_REDLOCK URL,URL,... NAME CYCLES [TRIES]. Tells when it held, in ns of a clock
// that goes with CLOCK_BOOTTIME on a machine that was not suspended.
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const [urls, name, cycles, tries] = process.argv.slice(2);
const masters = urls.split(",").map((url) => new Redis(url));
// A try that wins too few masters keeps them until the last of its tries, and the next try is refused by its own value there. So tries
// without end can stand in everybody's way, their own included, without end: its value is on all masters, and it holds nothing.
const redlock = new Redlock(masters, { retryCount: Number(tries ?? 1) - 1 });
// Which masters refuse is no trouble.
redlock.on("error", () => {});

const PATIENCE_MS = 60000;

async function acquire() {
  for (const begun = Date.now(); Date.now() - begun < PATIENCE_MS; ) {
    try {
      return await redlock.acquire([name], 30000);
    } catch (refused) {
      await new Promise((done) => setTimeout(done, 5 + 20 * Math.random()));
    }
  }
  throw new Error("it is never its turn");
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
