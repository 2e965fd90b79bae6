//! Connections that break, freeze or stop delivering while a client holds a lock.
//!
//! Shows G-01, G-12, G-25.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::Testbed;
use lab::backends::redis;
use lab::{Event, HoldWork, Process, WorkerConfig, check};
use lab_servers::Wire;
use leasehold::Locks;

use super::testbed;

const SETTINGS: &str = "crash-grace=1s";

/// A client of the testbed's server behind a wire.
fn behind(testbed: &Testbed, wire: &Wire, settings: &str) -> Result<Locks> {
    Ok(testbed.run(leasehold::open(&format!(
        "{}?{settings}",
        wire.url_of("redis")
    )))?)
}

/// Each interruption is shorter than the grace. The test repeats it for many graces.
#[test]
fn killed_connections_do_not_cost_the_lock() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let mut holder = testbed.start(WorkerConfig {
        work: HoldWork::CheckedSleep(6_000_000),
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;

    let waiter = testbed.start(WorkerConfig::default())?;
    testbed.wait_until_waiting("a", waiter.first_thread())?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        for kind in ["pubsub", "normal"] {
            testbed.redis()[0].command(&["CLIENT", "KILL", "TYPE", kind]);
        }
        // The pace of the faults.
        sleep(Duration::from_millis(400));
    }

    let events = [holder.finish()?, waiter.finish()?].concat();
    ensure!(check::all(&events)?.len() == 2);
    redis::check_clean(&testbed, &WorkerConfig::default())
}

/// A connection delivers nothing any more, while a new connection would work. The client keeps the
/// lock.
#[test]
fn deaf_connections_do_not_cost_the_lock() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let wire = Wire::to(testbed.redis()[0].address());
    let locks = behind(&testbed, &wire, "crash-grace=2s")?;
    let guard = testbed.run(locks.mutex("a").acquire())?;
    wire.drop_replies_silently();
    let lost =
        testbed.run(async { tokio::time::timeout(Duration::from_secs(5), guard.lost()).await });
    ensure!(lost.is_err(), "{lost:?}");
    Ok(testbed.run(guard.release())?)
}

/// A client whose request on another connection succeeds notices that the connection for grants is
/// silent.
#[test]
fn deaf_push_connection_is_replaced() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let wire = Wire::to(testbed.redis()[0].address());
    let leasehold = leasehold::blocking::open(&format!("{}?{SETTINGS}", wire.url_of("redis")))?;
    wire.drop_replies_silently();
    let begun = Instant::now();
    while handed_over(&testbed, &leasehold)? > Duration::from_millis(200) {
        ensure!(
            begun.elapsed() < Duration::from_secs(15),
            "the waiter still finds its grants by polling"
        );
    }
    Ok(())
}

/// Returns how long after the release the waiter held the lock.
fn handed_over(testbed: &Testbed, leasehold: &leasehold::blocking::Locks) -> Result<Duration> {
    let held = testbed.run(testbed.locks().mutex("a").acquire())?;
    let waiting = leasehold.mutex("a").label("1");
    let waiter = std::thread::spawn(move || waiting.acquire().map(|guard| (guard, Instant::now())));
    testbed.wait_until_waiting("a", 1)?;
    let released = Instant::now();
    testbed.run(held.release())?;
    let (guard, granted) = waiter.join().expect("a wait does not panic")?;
    guard.release()?;
    Ok(granted - released)
}

/// The server does not notice the freeze, so the lease decides when the hold ends.
#[test]
fn frozen_connections_end_the_hold_before_the_next_grant() -> Result<()> {
    cut_off(|wire| wire.freeze(true))
}

/// The server sees the connection gone, so the grace decides when the hold ends.
#[test]
fn long_partition_ends_the_hold_before_the_next_grant() -> Result<()> {
    cut_off(|wire| {
        wire.refuse(true);
        wire.partition();
    })
}

#[test]
fn long_reply_loss_ends_the_hold_before_the_next_grant() -> Result<()> {
    cut_off(|wire| wire.lose_replies(true))
}

fn cut_off(fault: impl Fn(&Wire)) -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let wire = Wire::to(testbed.redis()[0].address());
    let mut holder = held_behind(&testbed, &wire)?;
    let mut next = testbed.start(WorkerConfig {
        lease_millis: Some(3_000),
        ..WorkerConfig::default()
    })?;
    let mut events: Vec<Event> = vec![testbed.wait_until_waiting("a", next.first_thread())?];
    fault(&wire);
    next.wait_for_grant()?;
    wire.freeze(false);
    wire.lose_replies(false);
    wire.refuse(false);
    holder.wait_for(|kind| matches!(kind, lab::EventKind::Expired))?;
    events.extend(holder.finish()?);
    events.extend(next.finish()?);

    let holds = check::all(&events)?;
    let first = holds.first().context("the first process did not hold")?;
    ensure!(holds.len() == 2 && first.until < u64::MAX);

    redis::check_clean(&testbed, &WorkerConfig::default())
}

fn held_behind(testbed: &Testbed, wire: &Wire) -> Result<Process> {
    let mut holder = testbed.start(WorkerConfig {
        store: format!("{}?{SETTINGS}", wire.url_of("redis")),
        lease_millis: Some(3_000),
        on_error: lab::OnError::Retry,
        work: HoldWork::CheckedSleep(u64::MAX),
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    Ok(holder)
}
