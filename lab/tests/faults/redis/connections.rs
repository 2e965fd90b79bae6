//! A connection that stops delivering while a client waits.
//!
//! Shows G-25.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_servers::Wire;

use super::{handed_over, testbed};

const SETTINGS: &str = "crash-grace=1s";

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
