//! Runtimes that end, are idle or are busy. The runtime in which a store was opened drives the
//! store's caller link.
//!
//! Shows G-13.

use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::Testbed;
use lab::until;
use lab_servers::Wire;
use leasehold::{Locks, blocking};
use tokio::runtime::{Builder, Runtime};

use super::testbed;

const SETTINGS: &str = "crash-grace=500ms";

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

#[test]
fn store_outlives_the_runtime_it_was_opened_in() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let first = runtime()?;
    let locks = first.block_on(leasehold::open(&testbed.url()))?;
    let held = first.block_on(locks.mutex("a").acquire())?;
    drop(first);
    grants_are_notified(&testbed, &blocking::Locks::from(locks.clone()))?;
    let second = runtime()?;
    second.block_on(async {
        drop(locks.mutex("b").acquire().await?);
        held.release().await
    })?;
    Ok(())
}

#[test]
fn idle_runtime_is_not_waited_for() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let idle = runtime()?;
    let locks = idle.block_on(leasehold::open(&testbed.url()))?;
    grants_are_notified(&testbed, &blocking::Locks::from(locks))
}

#[test]
fn connection_lost_on_idle_runtime_is_re_established() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let wire = Wire::to(testbed.redis()[0].address());
    let idle = runtime()?;
    let locks = idle.block_on(leasehold::open(&format!(
        "{}?{SETTINGS}",
        wire.url_of("redis")
    )))?;
    wire.partition();
    grants_are_notified(&testbed, &blocking::Locks::from(locks))?;

    // The task that drove the connection, and the task that was to reconnect.
    let tasks = idle.metrics().num_alive_tasks();
    ensure!(tasks <= 2, "{tasks} tasks wait for an idle runtime");

    Ok(())
}

/// In the end the waiter receives a notification of its grant, and does not find the grant by
/// polling.
fn grants_are_notified(testbed: &Testbed, leasehold: &blocking::Locks) -> Result<()> {
    until("grants to be notified", || {
        Ok((handed_over(testbed, leasehold, "grant")? < Duration::from_millis(200)).then_some(()))
    })
}

/// Returns how long after the release the waiter held the lock.
fn handed_over(testbed: &Testbed, leasehold: &blocking::Locks, name: &str) -> Result<Duration> {
    let held = testbed.run(testbed.locks().mutex(name).acquire())?;
    let waiting = leasehold.mutex(name).label("1");
    let waiter = thread::spawn(move || waiting.acquire().map(|guard| (guard, Instant::now())));
    testbed.wait_until_waiting(name, 1)?;
    let released = Instant::now();
    testbed.run(held.release())?;
    let (guard, granted) = waiter.join().expect("a wait does not panic")?;
    guard.release()?;
    Ok(granted.saturating_duration_since(released))
}

#[test]
fn busy_runtime_does_not_cost_the_lock() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let (events, begun) = channel();
    let url = testbed.url();
    let busy = thread::spawn(move || -> Result<()> {
        runtime()?.block_on(async {
            let locks = leasehold::open(&url).await?;
            let held = locks.mutex("a").acquire().await?;
            events.send(())?;
            // No other task runs on this runtime meanwhile.
            sleep(Duration::from_secs(3));
            held.check()?;
            Ok(held.release().await?)
        })
    });
    begun.recv()?;

    let lock: Locks = testbed.locks().clone();
    ensure!(
        testbed
            .run(lock.mutex("a").try_acquire_for(Duration::from_secs(2)))?
            .is_none(),
        "another client took the lock over"
    );

    busy.join().expect("a holder does not panic")
}
