//! Three servers, of which the leader is parted from the others. What else can happen to them is in the matrix.

use anyhow::{Context, Result, ensure};
use lab::{Orders, Site, Trouble, Work, check};
use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease};

use crate::TAKER;

const SESSION: &str = "session=4s";

/// A leader that does not know yet that the others have another answers pings and reads; whoever holds by it must not count
/// on that.
#[test]
fn a_leader_that_leads_nobody_vouches_for_nobody() -> Result<()> {
    let mut ensemble =
        Ensemble::of(&ZooKeeper::setup().tick(500).config("syncLimit", "60").release(ZooKeeperRelease::Newest));
    let leader = ensemble.leader();
    let site = Site::at(TAKER, &format!("{}?{SESSION}", ensemble.server((leader + 1) % 3).url()))?;
    let mut holder = site.start(Orders {
        store: format!("{}?{SESSION}", ensemble.server(leader).url()),
        work: Work::Watched(u64::MAX),
        trouble: Trouble::Endured,
        ..Orders::default()
    })?;
    holder.hear_granted()?;
    ensemble.part_unheard(leader);
    let other = ensemble.leader_without(leader);
    let store = format!("{}?{SESSION}", ensemble.server(other).url());
    let mut next = site.start(Orders { store, work: Work::Told, trouble: Trouble::Endured, ..Orders::default() })?;
    next.hear_granted()?;
    ensure!(ensemble.server(leader).mode().as_deref() == Some("leader"), "it was to think that it leads");
    holder.hear(|what| matches!(what, lab::What::RanOut))?;
    next.tell()?;
    // It tries to release for a while, and then ends.
    let told = [holder.finish()?, next.finish()?].concat();
    let holds = check::all(&told)?;
    ensure!(holds.len() == 2 && holds.first().context("the first")?.until < u64::MAX, "{holds:?}");
    Ok(())
}
