//! Three servers, of which the leader is parted from the others. What else can happen to them is in the matrix.

use anyhow::{Context, Result, ensure};
use lab::{HoldWork, OnError, Testbed, WorkerConfig, check};
use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease};

use crate::WORKER;

const SESSION: &str = "session=4s";

/// A leader that does not know yet that the others have another answers pings and reads; whoever holds by it must not count
/// on that.
#[test]
fn leader_without_quorum_does_not_confirm_sessions() -> Result<()> {
    let mut ensemble = Ensemble::of(
        &ZooKeeper::setup()
            .tick(500)
            .config("syncLimit", "60")
            .release(ZooKeeperRelease::Newest),
    );
    let leader = ensemble.leader();
    let testbed = Testbed::at(
        WORKER,
        &format!("{}?{SESSION}", ensemble.server((leader + 1) % 3).url()),
    )?;
    let mut holder = testbed.start(WorkerConfig {
        store: format!("{}?{SESSION}", ensemble.server(leader).url()),
        work: HoldWork::CheckedSleep(u64::MAX),
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    holder.wait_for_grant()?;
    ensemble.partition_one_way(leader);
    let other = ensemble.leader_without(leader);
    let store = format!("{}?{SESSION}", ensemble.server(other).url());
    let mut next = testbed.start(WorkerConfig {
        store,
        work: HoldWork::UntilSignal,
        on_error: OnError::Retry,
        ..WorkerConfig::default()
    })?;
    next.wait_for_grant()?;
    ensure!(
        ensemble.server(leader).mode().as_deref() == Some("leader"),
        "it was to think that it leads"
    );
    holder.wait_for(|kind| matches!(kind, lab::EventKind::Expired))?;
    next.send_signal()?;
    // It tries to release for a while, and then ends.
    let events = [holder.finish()?, next.finish()?].concat();
    let holds = check::all(&events)?;
    ensure!(
        holds.len() == 2 && holds.first().context("the first")?.until < u64::MAX,
        "{holds:?}"
    );
    Ok(())
}
