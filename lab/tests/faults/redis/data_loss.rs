//! A lock that the server has forgotten is free, and so is a lock whose lease has ended by the
//! server's clock. Exclusion ends with the server's data and time. These tests show the
//! consequences. The holder is notified of the loss, and tokens still show which holder came later.
//!
//! Shows G-01, G-04.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::backends::redis;
use lab::{
    Event, EventKind, Hold, HoldWork, OnError, Process, Testbed, WorkerConfig, check, holds, now,
};
use lab_servers::{Redis, Setup};
use leasehold::Guard;

use crate::WORKER;

const SETTINGS: &str = "crash-grace=1s";
const LEASE: Duration = Duration::from_secs(10);
/// The time that a busy machine adds.
const SLACK: Duration = Duration::from_secs(1);

#[test]
fn flushall_overlap_is_bounded() -> Result<()> {
    let overlap = met(Redis::setup(), |testbed| {
        drop(testbed.redis()[0].command(&["FLUSHALL"]));
    })?;
    ensure!(
        overlap < LEASE / 3 + SLACK,
        "two clients held for {overlap:?}"
    );
    Ok(())
}

#[test]
fn restart_without_data_overlap_is_bounded() -> Result<()> {
    let overlap = met(Redis::setup(), |testbed| testbed.server_mut(0).restart())?;
    ensure!(
        overlap < LEASE / 3 + SLACK,
        "two clients held for {overlap:?}"
    );
    Ok(())
}

#[test]
fn clock_jump_beyond_the_lease_overlap_is_bounded() -> Result<()> {
    let overlap = met(Redis::setup().own_clock(), |testbed| {
        testbed.redis()[0].set_clock(15);
    })?;
    ensure!(
        overlap < LEASE / 3 + SLACK,
        "two clients held for {overlap:?}"
    );
    Ok(())
}

/// A hold under crash detection is renewed in its lock every third of its lease. So at least two
/// thirds of the lease remain.
#[test]
fn clock_jump_within_the_lease_keeps_the_hold() -> Result<()> {
    let testbed = testbed(Redis::setup().own_clock())?;
    let holder = holder(&testbed, Duration::from_secs(30))?;
    testbed.redis()[0].set_clock(15);

    let waited = testbed.run(
        testbed
            .locks()
            .mutex("a")
            .try_acquire_for(Duration::from_secs(2)),
    )?;
    ensure!(waited.is_none(), "the lock was free");

    let first = only(&holder.kill()?)?;
    ensure!(
        first.until < u64::MAX,
        "the holder held until it was killed"
    );

    Ok(())
}

/// Tokens keep rising, and the server detects a crash in the same time.
#[test]
fn clock_set_back_keeps_tokens_and_crash_detection() -> Result<()> {
    let testbed = testbed(Redis::setup().own_clock())?;
    let mut holder = holder(&testbed, Duration::from_secs(30))?;
    testbed.redis()[0].set_clock(-3_600);

    let waiter = testbed.start(WorkerConfig::default())?;
    testbed.wait_until_waiting("a", waiter.first_thread())?;
    let killed = holder.kill_now()?;
    let events = [holder.end()?, waiter.finish()?].concat();
    let holds = check::all(&events)?;
    let next = holds.last().context("the waiter did not hold")?;
    ensure!(
        Duration::from_nanos(next.granted - killed) < Duration::from_secs(3),
        "the clock delayed crash detection"
    );

    redis::check_clean(&testbed, &WorkerConfig::default())
}

fn testbed(setup: Setup) -> Result<Testbed> {
    redis::start(WORKER, setup, SETTINGS)
}

/// A process that holds the lock until it finds that its hold is lost.
fn holder(testbed: &Testbed, lease: Duration) -> Result<Process> {
    let mut holder = testbed.start(WorkerConfig {
        lease_millis: Some(u64::try_from(lease.as_millis())?),
        work: HoldWork::CheckedSleep(u64::MAX),
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    Ok(holder)
}

/// Makes the server forget a holder. Another client is granted the lock at once, with a larger
/// token, and the holder is notified. Returns how long both clients held the lock.
fn met(setup: Setup, forget: impl FnOnce(&mut Testbed)) -> Result<Duration> {
    let mut testbed = testbed(setup)?;
    let mut holder = holder(&testbed, LEASE)?;
    forget(&mut testbed);

    let second = testbed
        .run(testbed.locks().mutex("a").try_acquire())?
        .context("a forgotten lock is not free")?;
    let granted = now();
    holder.wait_for(|kind| matches!(kind, EventKind::Revoked | EventKind::Expired))?;

    let first = only(&holder.finish()?)?;
    let overlap = Duration::from_nanos(first.until.saturating_sub(granted));
    println!("two clients held for {overlap:?}");
    check_later(&first, &second)?;
    testbed.run(second.release())?;
    Ok(overlap)
}

fn check_later(first: &Hold, second: &Guard) -> Result<()> {
    second.check()?;
    ensure!(
        second.token().get() > first.token,
        "token {} after {first}",
        second.token()
    );
    Ok(())
}

fn only(events: &[Event]) -> Result<Hold> {
    let holds = holds(events)?;
    ensure!(holds.len() == 1, "{holds:?}");
    Ok(holds[0])
}
