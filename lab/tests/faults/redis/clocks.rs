//! A server's clock that jumps by less than a lease, and one that is set back before a crash. The
//! cells of the matrix jump by more than a lease, and kill no worker meanwhile.
//!
//! Shows G-01, G-04.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::backends::redis;
use lab::{HoldWork, OnError, Process, Testbed, WorkerConfig, check};
use lab_servers::Redis;

use crate::WORKER;

/// A hold under crash detection is renewed in its lock every third of its lease. So at least two
/// thirds of the lease remain.
#[test]
fn clock_jump_within_the_lease_keeps_the_hold() -> Result<()> {
    let (testbed, holder) = held()?;
    testbed.servers_of::<Redis>()[0].set_clock(15);

    let waited = testbed.run(
        testbed
            .locks()
            .mutex("a")
            .try_acquire_for(Duration::from_secs(2)),
    )?;
    ensure!(waited.is_err(), "the lock was free");

    let holds = check::all(&holder.kill()?)?;
    ensure!(
        matches!(holds[..], [hold] if hold.until < u64::MAX),
        "the holder did not hold until it was killed: {holds:?}"
    );
    Ok(())
}

/// Tokens keep rising, and the server detects a crash in the same time.
#[test]
fn clock_set_back_keeps_tokens_and_crash_detection() -> Result<()> {
    let (testbed, mut holder) = held()?;
    testbed.servers_of::<Redis>()[0].set_clock(-3_600);

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

/// A server with a clock of its own, and a process that holds until it finds that its hold is lost.
fn held() -> Result<(Testbed, Process)> {
    let testbed = redis::start(WORKER, Redis::setup().own_clock(), "crash-grace=1s")?;
    let mut holder = testbed.start(WorkerConfig {
        lease_millis: Some(30_000),
        work: HoldWork::CheckedSleep(u64::MAX),
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    Ok((testbed, holder))
}
