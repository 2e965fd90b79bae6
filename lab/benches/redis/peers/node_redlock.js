// needs: redlock@5.0.0-beta.2 ioredis@5.4.1
// The Lock of node-redlock on one server: no token, no queue, no renewal. It polls every 200 ms. The
// moments are those of the monotonic clock. On a machine that was never suspended this clock equals
// CLOCK_BOOTTIME.
const { createInterface } = require("readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const LEASE_MS = 30000;
const master = new Redis(process.argv[2]);
const redlock = new Redlock([master], { retryCount: -1 });
// The failed attempts of an acquire that waits.
redlock.on("error", () => {});

const now = () => Number(process.hrtime.bigint());
const pause = (micros) => micros && new Promise((done) => setTimeout(done, micros / 1000));
const together = async (count, work) => {
  const results = await Promise.all(Array.from({ length: count }, (_, number) => work(number)));
  return results.flat();
};

async function pairs(name, count) {
  const took = [];
  for (let pair = 0; pair < count; pair++) {
    const begun = now();
    const lock = await redlock.acquire([name], LEASE_MS);
    await lock.release();
    took.push(now() - begun);
  }
  return took;
}

async function contend(task) {
  const moments = [];
  while (now() < task.until) {
    moments.push(now());
    const lock = await redlock.acquire([task.name], LEASE_MS);
    moments.push(now());
    await pause(task.hold_micros);
    moments.push(now());
    await lock.release();
  }
  return moments;
}

async function run(task) {
  switch (task.do) {
    case "pairs":
      return pairs(task.name, task.count);
    case "names": {
      const begun = now();
      await together(task.names, (name) => pairs(`n${name}`, task.each));
      return [now() - begun];
    }
    case "contend":
      return together(task.threads, () => contend(task));
    default:
      return null;
  }
}

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await run(JSON.parse(line))) + "\n");
  }
  master.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
