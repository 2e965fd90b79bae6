//! Three servers, of which one is killed, stopped or parted from the others.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{Event, Orders, Process, Site, Trouble, Work, check};
use lab_servers::{Ensemble, ZooKeeper};

use crate::TAKER;

const SESSION: &str = "session=4s";

pub(super) fn ensemble() -> Result<(Ensemble, Site)> {
    let ensemble = Ensemble::of(&ZooKeeper::setup().tick(500));
    let site = Site::at(TAKER, &format!("{}?{SESSION}", ensemble.url()))?;
    Ok((ensemble, site))
}

/// Processes that take the lock again and again while each server in turn is treated badly.
fn work_through(fault: impl Fn(&mut Ensemble, usize), repair: impl Fn(&mut Ensemble, usize)) -> Result<()> {
    let (mut ensemble, site) = ensemble()?;
    let cycles =
        Orders { cycles: u64::MAX, work: Work::Watched(20_000), trouble: Trouble::Endured, ..Orders::default() };
    let crew = (0..3).map(|_| site.start(cycles.clone())).collect::<Result<Vec<Process>>>()?;
    let mut crew: Vec<Process> = crew;
    for one in &mut crew {
        one.hear_granted()?;
    }
    for number in 0..ensemble.count() {
        fault(&mut ensemble, number);
        // All go on with the two that are left.
        let since = lab::now();
        for one in &mut crew {
            while one.hear_granted()?.at < since {}
        }
        repair(&mut ensemble, number);
        ensemble.server(number).serves();
        for one in &mut crew {
            one.hear_granted()?;
        }
    }
    let mut told: Vec<Event> = Vec::new();
    for one in crew {
        told.extend(one.kill()?);
    }
    let holds = check::all(&told)?;
    println!("{} holds", holds.len());
    clean_within_two_sessions(&ensemble, &site)
}

/// No node of the dead is left after two session timeouts.
pub(super) fn clean_within_two_sessions(ensemble: &Ensemble, site: &Site) -> Result<()> {
    let begun = Instant::now();
    let server = ensemble.server(ensemble.leader());
    while server.count("zk_ephemerals_count") > 0 {
        ensure!(begun.elapsed() < Duration::from_secs(2 * 4 + 4), "orphans: {:?}", site.look("a")?);
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn each_can_be_killed() -> Result<()> {
    work_through(
        |ensemble, number| ensemble.server_mut(number).kill(),
        |ensemble, number| {
            ensemble.server_mut(number).start_again();
        },
    )
}

#[test]
fn each_can_be_stopped() -> Result<()> {
    work_through(
        |ensemble, number| ensemble.server(number).pause(),
        |ensemble, number| {
            ensemble.server(number).resume();
        },
    )
}

#[test]
fn each_can_be_parted() -> Result<()> {
    work_through(|ensemble, number| ensemble.part(number), |ensemble, _| ensemble.heal())
}

/// A leader that does not know yet that the others have another answers pings and reads; whoever holds by it must not count
/// on that.
#[test]
fn a_leader_that_leads_nobody_vouches_for_nobody() -> Result<()> {
    let mut ensemble = Ensemble::of(&ZooKeeper::setup().tick(500).config("syncLimit", "60"));
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
