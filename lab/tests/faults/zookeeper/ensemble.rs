//! A leader that is partitioned from the two other servers. The matrix covers further faults.
//!
//! Shows G-01, G-12.

use anyhow::{Result, ensure};
use lab::{EventKind, HoldWork, OnError, Testbed, WorkerConfig, check};
use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease};

use crate::WORKER;

/// A partitioned leader replies to pings and reads until it notices that the others have a new
/// leader. A holder on this server must not extend its validity by these replies.
#[test]
fn leader_without_quorum_does_not_confirm_sessions() -> Result<()> {
    let setup = ZooKeeper::setup()
        .tick(500)
        .config("syncLimit", "60")
        .release(ZooKeeperRelease::Newest);
    let mut ensemble = Ensemble::of(&setup);
    let leader = ensemble.leader();
    let url = |ensemble: &Ensemble, server: usize| {
        format!("{}?session=4s", ensemble.server(server).url())
    };
    let testbed = Testbed::at(WORKER, &url(&ensemble, (leader + 1) % 3))?;
    let mut holder = testbed.start(WorkerConfig {
        store: url(&ensemble, leader),
        work: HoldWork::CheckedSleep(u64::MAX),
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;

    ensemble.partition_one_way(leader);
    let other = ensemble.leader_without(leader);
    let mut next = testbed.start(WorkerConfig {
        store: url(&ensemble, other),
        work: HoldWork::UntilSignal,
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    next.wait_for_grant()?;
    let mode = ensemble.server(leader).mode();
    ensure!(
        mode.as_deref() == Some("leader"),
        "the partitioned leader is {mode:?} already"
    );
    holder.wait_for(|kind| matches!(kind, EventKind::Expired))?;
    next.send_signal()?;

    // By itself the holder would end only after many attempts to release.
    let events = [holder.kill()?, next.finish()?].concat();
    let holds = check::all(&events)?;
    ensure!(holds.len() == 2, "{holds:?}");
    ensure!(holds[0].until < u64::MAX, "{holds:?}");
    Ok(())
}
