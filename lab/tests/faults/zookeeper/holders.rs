//! Holders and waiters that are killed or stopped.
//!
//! Shows G-02.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::{EventKind, HoldWork, OnError, WorkerConfig, check};

use super::{SESSION, check_clean, testbed};
use crate::killed::survive;

/// A session may last a tick longer, and servers end sessions at the end of a tick.
const TICK: Duration = Duration::from_millis(500);
/// The delays of a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

#[test]
fn killed_holder_is_followed_within_the_session() -> Result<()> {
    let (server, testbed) = testbed()?;
    for _ in 0..3 {
        let mut holder = testbed.start(WorkerConfig {
            work: HoldWork::CheckedSleep(u64::MAX),
            ..WorkerConfig::default()
        })?;
        holder.wait_for_grant()?;
        let mut next = testbed.start(WorkerConfig::default())?;
        let seen = testbed.wait_until_waiting("a", next.first_thread())?;
        let killed = holder.kill_now()?;
        let took = Duration::from_nanos(next.wait_for_grant()?.at - killed);
        println!("held {took:?} after the kill");
        let limit = SESSION + TICK * 2 + SLACK;
        ensure!(
            took <= limit,
            "held {took:?} after the kill, later than {limit:?}"
        );
        check::all(&[holder.end()?, next.finish()?, vec![seen]].concat())?;
    }

    check_clean(&server, &testbed)
}

#[test]
fn killed_holder_then_first_waiter_leave_fifo_order() -> Result<()> {
    check_survivors(&[0, 1])
}

#[test]
fn killed_middle_waiter_then_holder_leave_fifo_order() -> Result<()> {
    check_survivors(&[2, 0])
}

fn check_survivors(killed: &[usize]) -> Result<()> {
    let (server, testbed) = testbed()?;
    survive(&testbed, 2, killed)?;
    check_clean(&server, &testbed)
}

/// A holder that is stopped for longer than its session has lost the lock when it continues. The
/// next waiter has held meanwhile.
#[test]
fn holder_stopped_beyond_its_session_has_lost() -> Result<()> {
    let (server, testbed) = testbed()?;
    let mut holder = testbed.start(WorkerConfig {
        work: HoldWork::CheckedSleep(u64::MAX),
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    let mut next = testbed.start(WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    })?;
    let seen = testbed.wait_until_waiting("a", next.first_thread())?;

    holder.pause()?;
    next.wait_for_grant()?;
    holder.resume()?;
    holder.wait_for(|kind| matches!(kind, EventKind::Expired | EventKind::Revoked))?;
    next.send_signal()?;
    let holds = check::all(&[holder.finish()?, next.finish()?, vec![seen]].concat())?;
    ensure!(holds.len() == 2, "{holds:?}");
    check_clean(&server, &testbed)
}

/// A waiter that is stopped for longer than its session loses its position. The waiter behind it is
/// granted, and the stopped one enters the queue again.
#[test]
fn waiter_stopped_beyond_its_session_is_skipped() -> Result<()> {
    let (server, testbed) = testbed()?;
    let mut holder = testbed.start(WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    let mut stopped = testbed.start(WorkerConfig::default())?;
    testbed.wait_until_waiting("a", stopped.first_thread())?;
    let mut behind = testbed.start(WorkerConfig {
        work: HoldWork::UntilSignal,
        ..WorkerConfig::default()
    })?;
    testbed.wait_until_waiting("a", behind.first_thread())?;

    stopped.pause()?;
    holder.send_signal()?;
    behind.wait_for_grant()?;
    stopped.resume()?;
    // This is enough time for a wrong grant to show.
    sleep(TICK);
    behind.send_signal()?;
    stopped.wait_for_grant()?;
    let events = [holder.finish()?, stopped.finish()?, behind.finish()?].concat();
    ensure!(check::all(&events)?.len() == 3);
    check_clean(&server, &testbed)
}
