//! Failovers that sentinels start and complete by themselves.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Sentinels;

use super::{ended_now, millis, wait};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now};

/// Kills the master.
pub(super) fn master_killed(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let group = run.testbed.servers_mut::<Sentinels>()?;
    let old = group.master();
    group.server_mut(old).kill();
    let new = group.master_other_than(old);
    let effect = replaced(since, old, new);
    group.rejoin(old);
    Ok(Some(whole(effect)))
}

/// Stops the master until another one is named, and for a moment longer.
pub(super) fn master_paused(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let group = run.testbed.servers::<Sentinels>()?;
    let old = group.master();
    group.server(old).pause();
    let new = group.master_other_than(old);
    wait(millis(random, 0, 300));
    let effect = replaced(since, old, new);
    group.server(old).resume();
    group.wait_until_whole();
    Ok(Some(whole(effect)))
}

/// Cuts the master off from sentinels and replicas, while clients still reach it.
pub(super) fn master_partition(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let group = run.testbed.servers::<Sentinels>()?;
    let old = group.master();
    group.partition(old);
    let new = group.master_other_than(old);
    wait(millis(random, 0, 1_000));
    let effect = replaced(since, old, new);
    group.heal(old);
    group.wait_until_whole();
    Ok(Some(whole(effect)))
}

/// Kills the master when both replicas lack the last grants.
pub(super) fn master_lagging(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let old = run.testbed.servers::<Sentinels>()?.master();
    run.testbed.servers::<Sentinels>()?.freeze(old, true);
    wait(millis(random, 50, 400));
    let missing = run.grants_since(since)?;

    let group = run.testbed.servers_mut::<Sentinels>()?;
    group.server_mut(old).kill();
    let new = group.master_other_than(old);
    let effect = ended_now(since, format!("server {new} lacks {missing} grants"));
    group.rejoin(old);
    Ok(Some(whole(effect)).filter(|_| missing > 0))
}

fn replaced(since: u64, old: usize, new: usize) -> Effect {
    let took = Duration::from_nanos(now() - since);
    ended_now(
        since,
        format!("server {new} instead of {old} after {took:.1?}"),
    )
}

/// The group is complete again.
fn whole(effect: Effect) -> Effect {
    Effect {
        recovered: now(),
        ..effect
    }
}
