// needs: redlock@5.0.0-beta.2 ioredis@5.4.1
// The Lock of node-redlock on one server: no token, no queue, no renewal. It polls every 200 ms.
const { createInterface } = require("readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const LEASE_MS = 30000;
const master = new Redis(process.argv[2]);
const redlock = new Redlock([master], { retryCount: -1 });
// The failed attempts of an acquire that waits.
redlock.on("error", () => {});

const now = () => Number(process.hrtime.bigint());
const together = (count, work) =>
  Promise.all(Array.from({ length: count }, (_, number) => work(number)));

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

async function run(task) {
  switch (task.do) {
    case "pairs":
      return pairs(task.name, task.count);
    case "names": {
      const begun = now();
      await together(task.names, (name) => pairs(`n${name}`, task.each));
      return [now() - begun];
    }
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
