// needs: pg@8.23.1
// Uses a lock of leasehold on PostgreSQL by its routines: NODE_POSTGRES URL NAME CYCLES THREAD.
// Each hold writes in a transaction of its own, which pins the grant, and every tenth is renewed.
// Prints its events as a worker of the lab does, each with a nanosecond of the monotonic clock. On a
// machine that was never suspended this clock equals CLOCK_BOOTTIME.
const { Client } = require("pg");

const [url, name, cycles, thread] = process.argv.slice(2);

function record(event) {
  console.log(`${process.hrtime.bigint()} ${thread} 0 ${event}`);
}

async function one(client, text, values) {
  return (await client.query({ text, values, rowMode: "array" })).rows[0];
}

// A waiter looks again every 20 ms.
async function acquire(locks) {
  let [claim, token] = await one(locks, "CALL leasehold.acquire($1::text)", [name]);
  while (token === null) {
    await new Promise((done) => setTimeout(done, 20));
    const look = "CALL leasehold.acquire($1::text, claim => $2::uuid)";
    [claim, token] = await one(locks, look, [name, claim]);
  }
  return [claim, token];
}

async function write(orders, token, claim) {
  await orders.query("BEGIN");
  const check = "SELECT leasehold.check($1::text, $2::bigint, $3::uuid, interval '10 s')";
  await orders.query(check, [name, token, claim]);
  const [value] = await one(orders, "SELECT value FROM orders", []);
  await orders.query("UPDATE orders SET value = $1", [BigInt(value) + 1n]);
  await orders.query("COMMIT");
}

async function call(locks, verb, claim) {
  const [done] = await one(locks, `CALL leasehold.${verb}($1::text, $2::uuid)`, [name, claim]);
  if (!done) {
    throw new Error(`the claim is gone before ${verb}`);
  }
}

async function main() {
  const locks = new Client({ connectionString: url });
  const orders = new Client({ connectionString: url });
  await Promise.all([locks.connect(), orders.connect()]);
  for (let cycle = 0; cycle < Number(cycles); cycle++) {
    record("requested");
    const [claim, token] = await acquire(locks);
    record(`granted ${token} 1 1`);
    await write(orders, token, claim);
    if (cycle % 10 === 0) {
      await call(locks, "renew", claim);
    }
    record("releasing");
    await call(locks, "release", claim);
    record("released");
  }
  await Promise.all([locks.end(), orders.end()]);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
