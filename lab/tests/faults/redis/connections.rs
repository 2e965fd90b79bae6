//! Connections that stop delivering while a client holds a lock or waits for it.
//!
//! Shows G-12, G-25.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_servers::Wire;

use super::{handed_over, testbed};

const SETTINGS: &str = "crash-grace=1s";

/// A new connection would work, so the client opens one before its hold can be taken over.
#[test]
fn deaf_connections_do_not_cost_the_lock() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let wire = Wire::to(testbed.servers_of::<lab_servers::Redis>()[0].address());
    let url = format!("{}?crash-grace=4s", wire.url_of("redis"));
    let locks = testbed.run(leasehold::open(&url))?;
    let held = testbed.run(locks.mutex("a").lease(Duration::from_secs(8)).acquire())?;

    wire.drop_replies_silently();
    let time = Duration::from_secs(9);
    let lost = testbed.run(async { tokio::time::timeout(time, held.lost()).await });
    ensure!(lost.is_err(), "{lost:?}");
    Ok(testbed.run(held.release())?)
}

/// A client whose request on another connection succeeds notices that the connection for grants is
/// silent.
#[test]
fn deaf_push_connection_is_replaced() -> Result<()> {
    let testbed = testbed(SETTINGS)?;
    let wire = Wire::to(testbed.servers_of::<lab_servers::Redis>()[0].address());
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
