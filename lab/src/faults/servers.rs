//! Faults of servers: killed, stopped, started anew, with another one in their place.

use std::time::Duration;

use anyhow::Result;

use super::{at_once, last, lasted, millis};
use crate::ground::Pair;
use crate::storm::{Storm, Struck};
use crate::{Random, What, now};

/// Killed for a while, and started again with what they have kept.
pub(super) fn killed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let which = storm.some(random);
    down(storm, &which, millis(random, 100, 900))
}

fn down(storm: &mut Storm, which: &[usize], time: Duration) -> Result<Option<Struck>> {
    which.iter().try_for_each(|&number| storm.ground.kill(number))?;
    let since = now();
    last(time);
    let struck = lasted(since, format!("server {which:?} down for {time:?}"));
    which.iter().try_for_each(|&number| storm.ground.start_again(number))?;
    whole(storm, struck)
}

/// Killed and started again at once.
pub(super) fn restarted(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let which = storm.some(random);
    which.iter().try_for_each(|&number| storm.ground.start_again(number))?;
    whole(storm, at_once(format!("server {which:?}")))
}

/// Killed, and started again with what it had saved a while before.
pub(super) fn restarted_stale(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    storm.ground.redis()[0].command(&["SAVE"]);
    let saved = now();
    last(millis(random, 50, 400));
    let forgotten = storm.told_since(saved, |what| matches!(what, What::Granted { .. }))?;
    storm.ground.start_again(0)?;
    let struck = whole(storm, at_once(format!("{forgotten} grants forgotten")))?;
    Ok(struck.filter(|_| forgotten > 0))
}

/// It is over when all serve again, and are believed.
fn whole(storm: &Storm, struck: Struck) -> Result<Option<Struck>> {
    storm.ground.is_whole()?;
    Ok(Some(Struck { over: now(), ..struck }))
}

pub(super) fn stopped(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let which = storm.some(random);
    halted(storm, &which, millis(random, 100, 1_200))
}

fn halted(storm: &mut Storm, which: &[usize], time: Duration) -> Result<Option<Struck>> {
    which.iter().try_for_each(|&number| storm.ground.pause(number, true))?;
    let since = now();
    last(time);
    let struck = lasted(since, format!("server {which:?} for {time:?}"));
    which.iter().try_for_each(|&number| storm.ground.pause(number, false))?;
    whole(storm, struck)
}

/// A majority is missed after a while only: who holds goes on until then, and who has asked waits.
pub(super) fn majority_killed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let which = storm.most(random);
    let time = storm.lease() + millis(random, 900, 1_500);
    down(storm, &which, time)
}

pub(super) fn majority_stopped(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let which = storm.most(random);
    let time = storm.lease() + millis(random, 900, 1_500);
    halted(storm, &which, time)
}

/// The one that leads.
pub(super) fn leader_killed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let leader = storm.ground.servers()?.leader();
    down(storm, &[leader], millis(random, 100, 900))
}

pub(super) fn leader_stopped(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let leader = storm.ground.servers()?.leader();
    // For longer than the others wait for it.
    halted(storm, &[leader], millis(random, 2_500, 4_000))
}

/// Cut off from the others, while its clients reach it.
pub(super) fn leader_parted(storm: &mut Storm, _: &mut Random) -> Result<Option<Struck>> {
    let leader = storm.ground.servers()?.leader();
    let ensemble = storm.ground.servers()?.ensemble()?;
    ensemble.part(leader);
    let since = now();
    let other = ensemble.leader_without(leader);
    ensemble.heal();
    whole(storm, lasted(since, format!("{other} leads instead of {leader}")))
}

/// The replica has heard nothing of what was written of late.
pub(super) fn failover_lagging(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    fail_over(storm, Some(millis(random, 50, 400)))
}

/// The replica has heard of nearly everything.
pub(super) fn failover(storm: &mut Storm, _: &mut Random) -> Result<Option<Struck>> {
    fail_over(storm, None)
}

fn fail_over(storm: &mut Storm, lag: Option<Duration>) -> Result<Option<Struck>> {
    let begun = now();
    if let Some(lag) = lag {
        storm.ground.pair()?.lag();
        last(lag);
    }
    let unheard = storm.told_since(begun, |what| matches!(what, What::Granted { .. }))?;
    let pair = storm.ground.pair()?;
    pair.fail_over();
    let struck = at_once(format!("{unheard} grants behind"));
    pair.restore()?;
    Ok(Some(struck).filter(|_| lag.is_none() || unheard > 0))
}

/// More than a lease, in seconds.
const SKEW: i64 = 20;

/// The replica's clock is ahead of the master's, and so further ahead of the machine's each time: tokens rise as clocks go on.
pub(super) fn failover_skewed(storm: &mut Storm, _: &mut Random) -> Result<Option<Struck>> {
    let pair = storm.ground.pair()?;
    let ahead = |pair: &Pair| (pair.replica().time() - pair.master().time() + 500_000).div_euclid(1_000_000);
    pair.replica().clock().step(SKEW - ahead(pair));
    let seen = ahead(pair);
    pair.fail_over();
    let struck = at_once(format!("ahead by {seen} s"));
    pair.restore()?;
    Ok(Some(struck).filter(|_| seen > SKEW / 2))
}

/// No server hears another, and clients reach all of them.
pub(super) fn all_parted(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let time = storm.lease() + millis(random, 900, 1_500);
    let ensemble = storm.ground.servers()?.ensemble()?;
    let all = 0..ensemble.count();
    all.clone().for_each(|one| ensemble.part(one));
    let since = now();
    last(time);
    let serving = all.filter(|&one| ensemble.server(one).mode().is_some()).count();
    let struck = lasted(since, format!("{serving} serve after {time:?}"));
    ensemble.heal();
    let _leader = ensemble.leader();
    Ok(whole(storm, struck)?.filter(|_| serving == 0))
}
