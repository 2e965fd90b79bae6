//! Faults of clients and servers on ZooKeeper.
//!
//! Shows G-01, G-05, G-30.

mod ensemble;
mod holders;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::{Testbed, until};
use lab_servers::ZooKeeper;

use crate::WORKER;

/// The session of the workers.
const SESSION: Duration = Duration::from_secs(2);

/// Starts a server, and a testbed for its locks.
fn testbed() -> Result<(ZooKeeper, Testbed)> {
    let server = ZooKeeper::setup().tick(500).start();
    let testbed = Testbed::at(WORKER, &format!("{}?session=2s", server.url()))?;
    Ok((server, testbed))
}

/// Checks that the queue is empty, and that no ephemeral node is left.
fn check_clean(server: &ZooKeeper, testbed: &Testbed) -> Result<()> {
    let begun = Instant::now();
    until("all ephemeral nodes to be removed", || {
        Ok((server.count("zk_ephemerals_count") == 0).then_some(()))
    })?;
    let took = begun.elapsed();
    let limit = 2 * SESSION + Duration::from_secs(5);
    ensure!(took < limit, "ephemeral nodes were left for {took:?}");
    testbed.check_empty(&["a".to_owned()])
}
