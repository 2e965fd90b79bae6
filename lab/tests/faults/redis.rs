//! The common faults on a Redis server, and the faults that only a Redis server has.

mod clocks;
mod connections;
mod killed;
mod runtimes;
mod traces;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use lab::Testbed;
use lab::backends::redis;
use lab_servers::Redis;
use leasehold::blocking;

use crate::WORKER;

fn testbed(settings: &str) -> Result<Testbed> {
    redis::start(WORKER, Redis::setup(), settings)
}

/// Returns how long after the release of a holder the waiting client held the lock.
fn handed_over(testbed: &Testbed, waiting: &blocking::Locks) -> Result<Duration> {
    let held = testbed.run(testbed.locks().mutex("grant").acquire())?;
    let lock = waiting.mutex("grant").label("1");
    let waiter = thread::spawn(move || lock.acquire().map(|guard| (guard, Instant::now())));
    testbed.wait_until_waiting("grant", 1)?;

    let released = Instant::now();
    testbed.run(held.release())?;
    let (guard, granted) = waiter.join().expect("a wait does not panic")?;
    guard.release()?;
    Ok(granted.saturating_duration_since(released))
}
