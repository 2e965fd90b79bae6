//! The same on ZooKeeper, and what can happen to its servers.

mod ensemble;
mod holders;

use anyhow::{Result, ensure};
use lab::{Testbed, until};
use lab_servers::ZooKeeper;

use crate::WORKER;

/// The shortest that the servers of these tests agree to.
const SESSION: std::time::Duration = std::time::Duration::from_secs(2);

/// A server of its own, and takers for its locks.
fn testbed() -> Result<(ZooKeeper, Testbed)> {
    let server = ZooKeeper::setup().tick(500).start();
    let testbed = Testbed::at(WORKER, &format!("{}?session=2s", server.url()))?;
    Ok((server, testbed))
}

/// Nobody is in line, and no node of anybody's session but the onlooker's is there.
fn check_clean(server: &ZooKeeper, testbed: &Testbed) -> Result<()> {
    let begun = std::time::Instant::now();
    until("all nodes of those who have gone to be gone", || {
        Ok((server.count("zk_ephemerals_count") == 0).then_some(()))
    })?;
    ensure!(
        begun.elapsed() < 2 * SESSION + std::time::Duration::from_secs(5),
        "orphans for {:?}",
        begun.elapsed()
    );
    testbed.check_empty(&["a".to_owned()])
}
