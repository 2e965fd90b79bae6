//! Failovers that sentinels or the nodes of a cluster start and complete by themselves, and slots
//! that move.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Cluster, Sentinels};

use super::{ended_now, millis, wait, whole};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now};

/// Kills the master, or that of a drawn slot.
pub(super) fn master_killed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    if let Ok(cluster) = run.testbed.servers_mut::<Cluster>() {
        let slot = draw_slot(random);
        let old = cluster.master_of(slot);
        cluster.node_mut(old).kill();
        let new = cluster.master_other_than(old, slot);
        let effect = replaced(since, old, new);
        cluster.node_mut(old).restart();
        cluster.wait_until_whole();
        return whole(run, effect).map(Some);
    }

    let group = run.testbed.servers_mut::<Sentinels>()?;
    let old = group.master();
    group.server_mut(old).kill();
    let new = group.master_other_than(old);
    let effect = replaced(since, old, new);
    group.rejoin(old);
    whole(run, effect).map(Some)
}

/// Stops the master until another one is named, and for a moment longer.
pub(super) fn master_paused(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let more = millis(random, 0, 300);
    if let Ok(cluster) = run.testbed.servers::<Cluster>() {
        let slot = draw_slot(random);
        let old = cluster.master_of(slot);
        cluster.node(old).pause();
        let new = cluster.master_other_than(old, slot);
        wait(more);
        let effect = replaced(since, old, new);
        cluster.node(old).resume();
        cluster.wait_until_whole();
        return whole(run, effect).map(Some);
    }

    let group = run.testbed.servers::<Sentinels>()?;
    let old = group.master();
    group.server(old).pause();
    let new = group.master_other_than(old);
    wait(more);
    let effect = replaced(since, old, new);
    group.server(old).resume();
    group.wait_until_whole();
    whole(run, effect).map(Some)
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
    whole(run, effect).map(Some)
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
    whole(run, effect).map(|effect| (missing > 0).then_some(effect))
}

/// Moves the slot of a lock to another master.
pub(super) fn slot_moved(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    const MASTERS: usize = 6;
    let since = now();
    let name = run.draw_name(random);
    let cluster = run.testbed.servers::<Cluster>()?;
    let slot = cluster.slot_of(&format!("leasehold:{{{name}}}"));
    let from = cluster.master_of(slot);

    let step = 1 + usize::try_from(random.below(2))?;
    let others = (from + step..).map(|node| node % MASTERS);
    let mut masters = others.filter(|node| *node != from && cluster.has_slots(*node));
    let to = masters.next().unwrap_or(from);
    cluster.move_slot(slot, from, to);
    Ok((to != from).then(|| ended_now(since, format!("slot {slot} from {from} to {to}"))))
}

fn draw_slot(random: &mut Random) -> u16 {
    u16::try_from(random.below(16_384)).unwrap_or(0)
}

fn replaced(since: u64, old: usize, new: usize) -> Effect {
    let took = Duration::from_nanos(now() - since);
    ended_now(
        since,
        format!("server {new} instead of {old} after {took:.1?}"),
    )
}
