//! What a server has forgotten is free, and so is what its clock says is over: exclusion ends with the server's data and time.
//! These tests show what happens then. The holder hears of it, and tokens still tell who came later.

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
/// What a busy machine adds.
const SLACK: Duration = Duration::from_secs(1);

#[test]
fn flushall_overlap_is_bounded() -> Result<()> {
    let overlap = met(Redis::setup(), |testbed| {
        drop(testbed.redis()[0].command(&["FLUSHALL"]));
    })?;
    ensure!(overlap < LEASE / 3 + SLACK, "two held for {overlap:?}");
    Ok(())
}

#[test]
fn restart_without_data_overlap_is_bounded() -> Result<()> {
    let overlap = met(Redis::setup(), |testbed| testbed.server_mut(0).restart())?;
    ensure!(overlap < LEASE / 3 + SLACK, "two held for {overlap:?}");
    Ok(())
}

#[test]
fn clock_jump_beyond_the_lease_overlap_is_bounded() -> Result<()> {
    let overlap = met(Redis::setup().own_clock(), |testbed| {
        testbed.redis()[0].set_clock(15);
    })?;
    ensure!(overlap < LEASE / 3 + SLACK, "two held for {overlap:?}");
    Ok(())
}

/// A hold that is judged by its connection is renewed in its lock every third of its lease, so it has two thirds left.
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
    ensure!(waited.is_none(), "it was free");
    let first = only(&holder.kill()?)?;
    ensure!(first.until < u64::MAX, "it held until it was killed");
    Ok(())
}

/// Tokens go on rising, and a crash is noticed in the same time.
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
    let next = holds.last().context("the waiter held")?;
    ensure!(
        Duration::from_nanos(next.granted - killed) < Duration::from_secs(3),
        "the clock took part"
    );
    redis::check_clean(&testbed, &WorkerConfig::default())
}

fn testbed(setup: Setup) -> Result<Testbed> {
    redis::start(WORKER, setup, SETTINGS)
}

/// A process that holds until it finds that it does not.
fn holder(testbed: &Testbed, lease: Duration) -> Result<Process> {
    let (lease, work) = (
        Some(u64::try_from(lease.as_millis())?),
        HoldWork::CheckedSleep(u64::MAX),
    );
    let mut holder = testbed.start(WorkerConfig {
        lease_millis: lease,
        work,
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    Ok(holder)
}

/// Lets the server forget a holder. Another is granted at once, with a larger token, and the holder hears of it; for how long
/// both held.
fn met(setup: Setup, forget: impl FnOnce(&mut Testbed)) -> Result<Duration> {
    let mut testbed = testbed(setup)?;
    let mut holder = holder(&testbed, LEASE)?;
    forget(&mut testbed);
    let second = testbed
        .run(testbed.locks().mutex("a").try_acquire())?
        .context("what was forgotten is free")?;
    let granted = now();
    holder.wait_for(|kind| matches!(kind, EventKind::Revoked | EventKind::Expired))?;
    let first = only(&holder.finish()?)?;
    let overlap = Duration::from_nanos(first.until.saturating_sub(granted));
    println!("two held for {overlap:?}");
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
