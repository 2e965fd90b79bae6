//! Faults of clients and servers on ZooKeeper that no cell of the matrix shows.
//!
//! Shows G-02.

mod ensemble;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab::{HoldWork, Testbed, WorkerConfig, check, until};
use lab_servers::ZooKeeper;

use crate::WORKER;

/// The session of the workers.
const SESSION: Duration = Duration::from_secs(2);
/// A session may last a tick longer, and servers end sessions at the end of a tick.
const TICK: Duration = Duration::from_millis(500);
/// The delays of a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

/// The time limit of the cell is that of all faults.
#[test]
fn killed_holder_is_followed_within_the_session() -> Result<()> {
    let server = ZooKeeper::setup().tick(500).start();
    let testbed = Testbed::at(WORKER, &format!("{}?session=2s", server.url()))?;
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
