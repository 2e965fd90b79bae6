//! Faults of those who take locks.

use std::time::Duration;

use anyhow::Result;

use super::{at_once, last, lasted};
use crate::storm::{Storm, Struck};
use crate::{Api, Fate, Halt, Orders, Random, Side, Step, What, Work, now, until_within};

fn holds(what: &What) -> bool {
    matches!(what, What::Granted { .. } | What::Trusted { .. })
}

fn waits(what: &What) -> bool {
    *what == What::Asked
}

pub(super) fn holder_killed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    killed(storm, random, holds)
}

pub(super) fn waiter_killed(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    killed(storm, random, waits)
}

fn killed(storm: &mut Storm, random: &mut Random, which: fn(&What) -> bool) -> Result<Option<Struck>> {
    let Some(number) = storm.catch(random, which)? else { return Ok(None) };
    let hand = storm.crew[number].hand();
    let at = storm.replace(number)?;
    Ok(Some(super::at(at, format!("hand {hand}"))))
}

pub(super) fn holder_stopped(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    stopped(storm, random, holds)
}

pub(super) fn waiter_stopped(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    stopped(storm, random, waits)
}

/// In turn for half of the lease and for a little more than it.
fn stopped(storm: &mut Storm, random: &mut Random, which: fn(&What) -> bool) -> Result<Option<Struck>> {
    let time = stop_time(storm);
    let Some(number) = storm.catch(random, which)? else { return Ok(None) };
    let since = now();
    last(time);
    storm.crew[number].resume()?;
    Ok(Some(lasted(since, format!("hand {} for {time:?}", storm.crew[number].hand()))))
}

fn stop_time(storm: &Storm) -> Duration {
    storm.lease().mul_f64(if storm.strikes.len().is_multiple_of(2) { 1.1 } else { 0.5 })
}

pub(super) fn killed_at_step(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let halt = halt(storm, random, Fate::Killed);
    let mut doomed = storm.ground.start_quiet(doomed(storm, halt))?;
    let met = until_within(STEP_MAX, "a step", || Ok(doomed.has_ended()?.then_some(()))).is_ok();
    if !met {
        storm.hear_of(doomed.kill()?);
        return Ok(None);
    }
    let told = doomed.end()?;
    let at = told.iter().rev().find(|event| event.what == What::Killed).map(|event| event.at);
    storm.hear_of(told);
    Ok(at.map(|at| super::at(at, shown(halt))))
}

pub(super) fn stopped_at_step(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let halt = halt(storm, random, Fate::Stopped);
    let time = stop_time(storm);
    let doomed = storm.ground.start_quiet(Orders { cycles: u64::from(halt.turn) + 1, ..doomed(storm, halt) })?;
    let met = until_within(STEP_MAX, "a step", || Ok(doomed.stands_still()?.then_some(()))).is_ok();
    let since = now();
    if met {
        last(time);
        doomed.resume()?;
    }
    let struck = met.then(|| lasted(since, shown(halt)));
    // It has a few cycles left, and has its turn among the others.
    storm.hear_of(doomed.finish()?);
    Ok(struck.filter(|struck| !struck.seen.is_empty()))
}

/// The master is killed, and its replica takes its place, while a process stands still at a step.
pub(super) fn failover_at_step(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let halt = halt(storm, random, Fate::Stopped);
    let doomed = storm.ground.start_quiet(Orders { cycles: u64::from(halt.turn) + 1, ..doomed(storm, halt) })?;
    let met = until_within(STEP_MAX, "a step", || Ok(doomed.stands_still()?.then_some(()))).is_ok();
    let pair = storm.ground.pair()?;
    pair.fail_over();
    let struck = at_once(shown(halt));
    doomed.resume()?;
    pair.restore()?;
    storm.hear_of(doomed.finish()?);
    Ok(met.then_some(struck))
}

/// How long a step may take to come.
const STEP_MAX: Duration = Duration::from_secs(30);

/// Every step before and after, one after another from where the seed begins.
fn halt(storm: &Storm, random: &mut Random, fate: Fate) -> Halt {
    let at = storm.strikes.len() + usize::try_from(storm.seed % 8).expect("a few");
    let sides = [Side::Before, Side::After];
    let step = Step::ALL[(at / 2) % Step::ALL.len()];
    // Only the first renewal comes in time.
    let turn = if step == Step::Renew { 1 } else { 1 + u32::try_from(random.below(3)).expect("a few") };
    Halt { step, side: sides[at % 2], turn, fate }
}

/// Who is to be renewed must hold for longer.
fn doomed(storm: &Storm, halt: Halt) -> Orders {
    let millis = if halt.step == Step::Renew { 1_000 } else { 3 };
    Orders {
        api: Api::Async,
        halt: Some(halt),
        patience: None,
        work: Work::Watched(millis * 1_000),
        ..storm.terms.clone()
    }
}

fn shown(halt: Halt) -> String {
    format!("{:?} {:?}, time {}", halt.side, halt.step, halt.turn).to_lowercase()
}

pub(super) fn hold_broken(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let name = storm.terms.names[usize::try_from(random.below(3))?].clone();
    for _ in 0..200 {
        let site = &storm.ground;
        let Some(token) = site.look(&name)?.holders().next().and_then(leasehold::Entry::token) else { continue };
        if site.run(site.locks().break_hold(&name, token))?.is_some() {
            return Ok(Some(at_once(format!("{name}: token {token}"))));
        }
    }
    Ok(None)
}
