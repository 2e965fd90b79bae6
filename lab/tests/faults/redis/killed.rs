//! kill -9: the server sees the connection end, and the next waiter holds when the grace is over.
//!
//! Shows G-02.

use std::time::Duration;

use anyhow::{Result, ensure};
use lab::backends::redis;
use lab::{Event, HoldWork, Process, Testbed, WorkerConfig, check};

use super::testbed;
use crate::killed::survive;

const SETTINGS: &str = "crash-grace=1s";
const GRACE: Duration = Duration::from_secs(1);
/// How long after the grace the first waiter may be granted the lock.
const DETECTED: Duration = Duration::from_millis(600);
/// How often the second waiter polls, in case the first waiter is gone too.
const FOREMOST_POLL: Duration = Duration::from_secs(4);
/// The time that a busy machine adds.
const SLACK: Duration = Duration::from_millis(700);

#[test]
fn next_waiter_is_granted_within_the_grace() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    for _ in 0..3 {
        let holder = start(&testbed, 1)?;
        let next = waiter(&testbed)?;
        check_time(took(holder, next)?, DETECTED)?;
    }
    redis::check_clean(&testbed, &WorkerConfig::default())
}

/// A client that subscribes to all channels is not mistaken for a holder.
#[test]
fn subscriber_to_all_channels_is_not_a_holder() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let mut monitor = testbed.redis()[0].connection();
    monitor.request(&["PSUBSCRIBE", "*"])?;
    let holder = start(&testbed, 1)?;
    let next = waiter(&testbed)?;
    check_time(took(holder, next)?, DETECTED)
}

#[test]
fn second_waiter_is_granted_after_holder_and_first_waiter_die() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let both = start(&testbed, 2)?;
    testbed
        .wait_until_waiting("a", both.first_thread() + 1)
        .or_else(|_| testbed.wait_until_waiting("a", both.first_thread()))?;
    let next = waiter(&testbed)?;
    check_time(took(both, next)?, FOREMOST_POLL + DETECTED)?;
    check_clean_in_the_end(&testbed)
}

#[test]
fn killed_holder_then_first_waiter_are_skipped() -> Result<()> {
    survived(&[0, 1])
}

#[test]
fn killed_first_waiter_then_holder_are_skipped() -> Result<()> {
    survived(&[1, 0])
}

#[test]
fn last_waiter_is_granted_after_all_others_die() -> Result<()> {
    survived(&[1, 0, 2])
}

fn survived(killed: &[usize]) -> Result<()> {
    let testbed = testbed("crash-grace=500ms")?;
    survive(&testbed, 2, killed)?;
    check_clean_in_the_end(&testbed)
}

fn check_clean_in_the_end(testbed: &Testbed) -> Result<()> {
    let last = WorkerConfig::default();
    redis::outlast_killed_waiters(testbed, &last.names)?;
    redis::check_clean(testbed, &last)
}

/// Starts a process with contending threads. The first thread that is granted holds until the
/// process is killed.
fn start(testbed: &Testbed, threads: u32) -> Result<Process> {
    let mut process = testbed.start(WorkerConfig {
        threads,
        work: HoldWork::CheckedSleep(u64::MAX),
        ..WorkerConfig::default()
    })?;
    process.wait_for_grant()?;
    Ok(process)
}

fn waiter(testbed: &Testbed) -> Result<Process> {
    let waiter = testbed.start(WorkerConfig::default())?;
    testbed.wait_until_waiting("a", waiter.first_thread())?;
    Ok(waiter)
}

/// Returns how long after the kill the other process was granted the lock.
fn took(mut holder: Process, mut next: Process) -> Result<Duration> {
    let killed = holder.kill_now()?;
    let granted = next.wait_for_grant()?.at;
    let events: Vec<Event> = [holder.end()?, next.finish()?].concat();
    check::all(&events)?;
    Ok(Duration::from_nanos(granted - killed))
}

fn check_time(took: Duration, noticed: Duration) -> Result<()> {
    println!("granted {took:?} after the kill");
    ensure!(took >= GRACE, "granted only {took:?} after the kill");
    ensure!(
        took <= GRACE + noticed + SLACK,
        "granted as late as {took:?} after the kill"
    );
    Ok(())
}
