//! Faults of servers: killed, restarted, paused, replaced.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Ensemble;

use super::redis::errors;
use super::{ended_now, instant, millis, wait, whole};
use crate::backends::replica::{Pair, fail_over, lead_to_master};
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now};

/// Kills servers, and restarts them later with their data.
pub(super) fn killed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    down(run, &which, run.plan.length)
}

fn down(run: &mut FaultRun, which: &[usize], time: Duration) -> Result<Option<Effect>> {
    for &number in which {
        run.testbed.server_mut(number).kill();
    }
    let since = now();
    wait(time);
    let effect = ended_now(since, format!("server {which:?} down for {time:?}"));
    for &number in which {
        run.testbed.server_mut(number).restart();
    }
    whole(run, effect).map(Some)
}

/// Kills servers and restarts them immediately, without their data.
pub(super) fn restarted_empty(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    for &number in &which {
        run.testbed.server_mut(number).restart();
    }
    whole(run, instant(format!("server {which:?}"))).map(Some)
}

/// Kills the server and restarts it with an older snapshot.
pub(super) fn restarted_stale(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    run.testbed.servers_of::<lab_servers::Redis>()[0].command(&["SAVE"]);
    let saved = now();
    wait(millis(random, 50, 400));
    let forgotten = run.grants_since(saved)?;
    run.testbed.server_mut(0).restart();
    let effect = whole(run, instant(format!("{forgotten} grants forgotten")))?;
    Ok((forgotten > 0).then_some(effect))
}

/// In leases: two masters forget the votes of a holder because they expire.
const EXPIRES_AFTER: f64 = 1.1;

/// Two masters are stopped until their votes expire, while the long holder renews its votes on the
/// other three. Then it is cut off, the two continue, and one of the three is restarted without its
/// data. At no time is more than a minority stopped or empty.
pub(super) fn minority_changes(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let [first, second, third] = run.draw_servers(random);
    let paused = [first, second];
    for number in paused {
        run.testbed.server(number).pause();
    }
    wait(run.lease().mul_f64(EXPIRES_AFTER));

    let since = now();
    let is_held = run.is_long_lock_held()?;
    run.cut_off_long_holder(true);
    for number in paused {
        run.testbed.server(number).resume();
    }
    run.testbed.server_mut(third).restart();
    wait(run.lease().mul_f64(EXPIRES_AFTER));

    let effect = ended_now(since, format!("servers {paused:?}, then {third}"));
    run.cut_off_long_holder(false);
    whole(run, effect).map(|effect| is_held.then_some(effect))
}

pub(super) fn paused(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.minority(random);
    pause_for(run, &which, run.plan.length)
}

fn pause_for(run: &mut FaultRun, which: &[usize], time: Duration) -> Result<Option<Effect>> {
    for &number in which {
        run.testbed.server(number).pause();
    }
    let since = now();
    wait(time);
    let effect = ended_now(since, format!("server {which:?} for {time:?}"));
    for &number in which {
        run.testbed.server(number).resume();
    }
    whole(run, effect).map(Some)
}

/// The loss of a majority has its effect only after a while: holders continue and waiters wait
/// until then.
pub(super) fn majority_killed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.majority(random);
    let time = run.lease() + millis(random, 900, 1_500);
    down(run, &which, time)
}

pub(super) fn majority_paused(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let which = run.majority(random);
    let time = run.lease() + millis(random, 900, 1_500);
    pause_for(run, &which, time)
}

/// Kills the leader.
pub(super) fn leader_killed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let leader = run.testbed.servers::<Ensemble>()?.leader();
    down(run, &[leader], millis(random, 100, 900))
}

pub(super) fn leader_paused(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let leader = run.testbed.servers::<Ensemble>()?.leader();
    // Longer than the followers wait for the leader.
    pause_for(run, &[leader], millis(random, 2_500, 4_000))
}

/// Cuts the leader off from the followers, while its clients still reach it.
pub(super) fn leader_partition(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let leader = run.testbed.servers::<Ensemble>()?.leader();
    let ensemble = run.testbed.servers::<Ensemble>()?;
    ensemble.partition(leader);
    let since = now();
    let other = ensemble.leader_without(leader);
    ensemble.heal();
    let effect = ended_now(since, format!("server {other} leads instead of {leader}"));
    whole(run, effect).map(Some)
}

/// The replica lacks the last writes.
pub(super) fn failover_lagging(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    replaced(run, Some(millis(random, 50, 400)))
}

/// The replica has nearly all writes.
pub(super) fn failover(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    replaced(run, None)
}

fn replaced(run: &mut FaultRun, lag: Option<Duration>) -> Result<Option<Effect>> {
    let begun = now();
    if let Some(lag) = lag {
        run.testbed.servers::<Pair>()?.lag();
        wait(lag);
    }
    let missing = run.grants_since(begun)?;
    fail_over(&mut run.testbed)?;
    let effect = instant(format!("{missing} grants missing on the replica"));
    run.testbed.servers_mut::<Pair>()?.restore()?;
    Ok(Some(effect).filter(|_| lag.is_none() || missing > 0))
}

/// Makes the master a replica that keeps its connections. The address of the store leads to the new
/// master later, and no connection is closed.
pub(super) fn demoted(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let time = run.plan.length;
    let since = now();
    let pair = run.testbed.servers_mut::<Pair>()?;
    let before = errors(pair.master(), "READONLY");
    pair.swap_roles();
    wait(time);
    lead_to_master(&run.testbed)?;

    let pair = run.testbed.servers::<Pair>()?;
    let refused = errors(pair.replica(), "READONLY") - before;
    let effect = ended_now(since, format!("{refused} refused in {time:?}"));
    pair.wait_until_in_sync()?;
    Ok((refused > 0).then_some(effect))
}

/// In seconds: more than a lease.
const SKEW: i64 = 20;

/// The replica's clock is ahead of the master's, and each time further ahead of the machine's:
/// tokens rise because the clocks advance.
pub(super) fn failover_skewed(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let pair = run.testbed.servers::<Pair>()?;
    let ahead = |pair: &Pair| {
        (pair.replica().time() - pair.master().time() + 500_000).div_euclid(1_000_000)
    };
    pair.replica().clock().step(SKEW - ahead(pair));
    let seen = ahead(pair);
    fail_over(&mut run.testbed)?;
    let effect = instant(format!("ahead by {seen} s"));
    run.testbed.servers_mut::<Pair>()?.restore()?;
    Ok(Some(effect).filter(|_| seen > SKEW / 2))
}

/// Cuts every server off from the others, while clients reach all of them.
pub(super) fn partition_all(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let time = run.lease() + millis(random, 900, 1_500);
    let ensemble = run.testbed.servers::<Ensemble>()?;
    let all = 0..ensemble.count();
    all.clone().for_each(|one| ensemble.partition(one));
    let since = now();
    wait(time);
    let serving = all
        .filter(|&one| ensemble.server(one).mode().is_some())
        .count();
    let effect = ended_now(since, format!("{serving} serve after {time:?}"));
    ensemble.heal();
    let _leader = ensemble.leader();

    whole(run, effect).map(|effect| (serving == 0).then_some(effect))
}

/// Closes a client's session, as the client itself could.
pub(super) fn session_closed(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let number = usize::try_from(random.below(run.testbed.wires.len() as u64))?;
    let server = run.testbed.servers_of::<lab_servers::ZooKeeper>()[number];
    let sessions = server.sessions();
    if sessions.is_empty() {
        return Ok(None);
    }
    let session = sessions[usize::try_from(random.below(sessions.len() as u64))?];
    let closed = server.close_session(session)?;
    Ok(closed.then(|| instant(format!("session {session:#x}"))))
}
