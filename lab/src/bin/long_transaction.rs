//! Measures how the versions of a row slow a lock of PostgreSQL down that a long transaction keeps:
//! the time to acquire and release it, after so many acquisitions beside the transaction.

use std::time::Instant;

use anyhow::Result;
use lab_servers::Postgres;
use leasehold::blocking::{self, Lock};

const AFTER: [u32; 4] = [0, 1_000, 5_000, 10_000];
/// The pairs of which the time is measured.
const MEASURED: u32 = 100;

fn main() -> Result<()> {
    let server = Postgres::start();
    let lock = blocking::open(&server.url())?.mutex("orders/42");
    let mut transaction = server.session();
    transaction.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class");
    println!("| acquisitions | a pair |\n|---|---|");
    let mut done = 0;
    for after in AFTER {
        pairs(&lock, after - done)?;
        print(&after.to_string(), &lock)?;
        done = after + MEASURED;
    }

    transaction.run("COMMIT");
    // Now the versions can be removed.
    pairs(&lock, MEASURED)?;
    print("after its end", &lock)
}

fn pairs(lock: &Lock, count: u32) -> Result<()> {
    (0..count).try_for_each(|_| Ok(lock.acquire()?.release()?))
}

fn print(after: &str, lock: &Lock) -> Result<()> {
    let begun = Instant::now();
    pairs(lock, MEASURED)?;
    println!("| {after} | {:.2?} |", begun.elapsed() / MEASURED);
    Ok(())
}
