//! Connections that break, freeze or stop delivering while a client holds a lock.
//!
//! Shows G-01, G-12, G-25.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::Testbed;
use lab::backends::redis;
use lab::{HoldWork, WorkerConfig, check};
use lab_servers::Wire;
use leasehold::Locks;

use super::{handed_over, testbed};

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
