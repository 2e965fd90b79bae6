//! Runtimes that end, are idle or are busy. The runtime in which a store was opened drives the
//! store's caller link.
//!
//! Shows G-13.

use std::sync::mpsc::channel;
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::Testbed;
use lab::until;
use lab_servers::Wire;
use leasehold::blocking;
use tokio::runtime::{Builder, Runtime};

use super::{handed_over, testbed};

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
    let wire = Wire::to(testbed.servers_of::<lab_servers::Redis>()[0].address());
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

#[test]
fn busy_runtime_does_not_cost_the_lock() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let url = testbed.url();
    let (granted, grants) = channel();
    let busy = thread::spawn(move || {
        runtime()?.block_on(async {
            let locks = leasehold::open(&url).await?;
            let held = locks.mutex("a").acquire().await?;
            granted.send(())?;
            // No other task runs on this runtime meanwhile.
            sleep(Duration::from_secs(3));
            held.check()?;
            Ok(held.release().await?)
        })
    });

    grants.recv()?;
    let waiting = testbed.locks().mutex("a");
    let taken = testbed.run(waiting.try_acquire_for(Duration::from_secs(2)))?;
    ensure!(taken.is_err(), "another client took the lock over");
    busy.join().expect("a holder does not panic")
}

/// In the end the waiter receives a notification of its grant, and does not find the grant by
/// polling.
fn grants_are_notified(testbed: &Testbed, leasehold: &blocking::Locks) -> Result<()> {
    until("grants to be notified", || {
        Ok((handed_over(testbed, leasehold)? < Duration::from_millis(200)).then_some(()))
    })
}
