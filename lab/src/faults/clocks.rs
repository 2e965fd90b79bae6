//! Faults of clocks: those of servers and those of workers.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Clock;

use super::{ended_now, instant, millis, wait};
use crate::backends::Capability;
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until_within};

/// More than any lease.
const STEP_SECONDS: i64 = 20;

pub(super) fn jump_forward(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    stepped(run, random, STEP_SECONDS)
}

pub(super) fn jump_back(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    stepped(run, random, -STEP_SECONDS)
}

/// More than the time for which a server remembers a name.
const STEP_DAYS: i64 = 2 * 24 * 3_600;

pub(super) fn forward_days(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    stepped(run, random, STEP_DAYS)
}

pub(super) fn back_days(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    stepped(run, random, -STEP_DAYS)
}

/// Steps add up if a server is drawn again.
fn stepped(run: &FaultRun, random: &mut Random, step: i64) -> Result<Option<Effect>> {
    let which = effect_of(run, random);
    let mut seen = Vec::new();
    for &number in &which {
        let before = ahead(run, number)?;
        run.testbed.server(number).clock().step(step);
        seen.push((ahead(run, number)? - before) / 1_000_000);
    }
    let has_effect = seen
        .iter()
        .all(|seen| (seen - step).abs() < STEP_SECONDS / 2);
    Ok(has_effect.then(|| instant(format!("server {which:?} by {seen:?} s"))))
}

/// Draws the servers whose clocks become wrong. Of the masters these are always the same two, so
/// that a majority stays right. Elsewhere any clock may be wrong.
fn effect_of(run: &FaultRun, random: &mut Random) -> Vec<usize> {
    if run.backend.has(Capability::Masters) {
        vec![0, 1]
    } else {
        run.minority(random)
    }
}

/// How far a server's clock is ahead of the time since boot, in microseconds.
fn ahead(run: &FaultRun, number: usize) -> Result<i64> {
    Ok(run.testbed.server(number).time()? - i64::try_from(now() / 1_000)?)
}

/// Four times as fast, so that a lease ends before its renewal, and twice as fast, so that it
/// nearly does, in turn.
pub(super) fn fast(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    slewed(
        run,
        random,
        if run.injections.len().is_multiple_of(2) {
            3_000_000
        } else {
            1_000_000
        },
    )
}

/// Half as fast.
pub(super) fn slow(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    slewed(run, random, -500_000)
}

/// Lets clocks gain this many millionths for a lease and up to a second.
fn slewed(run: &FaultRun, random: &mut Random, gain: i64) -> Result<Option<Effect>> {
    let which = effect_of(run, random);
    let time = run.lease() + millis(random, 0, 1_000);
    let set = |gain| {
        for &number in &which {
            run.testbed.server(number).clock().gain(gain);
        }
    };
    let all_ahead = || {
        which
            .iter()
            .map(|&number| ahead(run, number))
            .collect::<Result<Vec<_>>>()
    };
    set(gain);
    let since = now();
    let before = all_ahead()?;
    wait(time);
    let gained: Vec<i64> = all_ahead()?
        .iter()
        .zip(before)
        .map(|(ahead, before)| ahead - before)
        .collect();
    let effect = ended_now(since, format!("server {which:?} by {gained:?} µs"));
    set(0);
    let wanted = i64::try_from((effect.until - since) / 1_000)? * gain / 1_000_000;

    Ok(gained
        .iter()
        .all(|gained| (gained - wanted).abs() < wanted.abs() / 4)
        .then_some(effect))
}

/// In seconds: how far a worker's wall clock may be wrong.
const WRONG: [i64; 5] = [0, 20, -20, 3_600, -3_600];
/// Within this time all workers have requested a lock again and read their clock.
const READ_MAX: Duration = Duration::from_secs(10);

/// Gives each worker another time of day from now on.
pub(super) fn client_wall(run: &mut FaultRun, random: &mut Random) -> Result<Option<Effect>> {
    let since = now();
    let clocks = &run.clocks;
    let set = |clock: &Clock| {
        let ahead = WRONG[usize::try_from(random.below(WRONG.len() as u64)).expect("a few")];
        clock.set(ahead);
        ahead
    };
    let ahead: Vec<i64> = clocks.iter().map(set).collect();
    let is_read = || clocks.iter().all(|clock| clock.readings() > 0);
    let read = until_within(READ_MAX, "all to read their clocks", || {
        Ok(is_read().then_some(()))
    });

    Ok(read
        .is_ok()
        .then(|| ended_now(since, format!("ahead by {ahead:?} s, and read"))))
}

/// More than tokens may be ahead of the clocks when no master has them. b 97 106
const TWO_DAYS_SECONDS: i64 = 2 * 24 * 60 * 60;

/// Steps the clocks while no client is connected. A client that has read a clock before the step
/// proposes tokens by that reading until it connects again.
pub(super) fn all_forward(run: &mut FaultRun, _random: &mut Random) -> Result<Option<Effect>> {
    let routes = [&run.testbed.wires, &run.testbed.holder_route.wires];
    for wire in routes.into_iter().flatten() {
        wire.refuse(true);
        wire.partition();
    }

    let seen = all_stepped(run, TWO_DAYS_SECONDS)?;
    for wire in routes.into_iter().flatten() {
        wire.refuse(false);
    }
    Ok(effect_of_steps(&seen, TWO_DAYS_SECONDS))
}

pub(super) fn all_back(run: &mut FaultRun, _random: &mut Random) -> Result<Option<Effect>> {
    let seen = all_stepped(run, -TWO_DAYS_SECONDS)?;
    for master in run.testbed.redis() {
        master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        master.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    Ok(effect_of_steps(&seen, -TWO_DAYS_SECONDS))
}

/// Returns by how many seconds each clock has moved.
fn all_stepped(run: &FaultRun, step: i64) -> Result<Vec<i64>> {
    let mut seen = Vec::new();
    for number in 0..run.testbed.wires.len() {
        let before = ahead(run, number)?;
        run.testbed.server(number).clock().step(step);
        seen.push((ahead(run, number)? - before) / 1_000_000);
    }
    Ok(seen)
}

fn effect_of_steps(seen: &[i64], step: i64) -> Option<Effect> {
    let has_effect = seen
        .iter()
        .all(|seen| (seen - step).abs() < STEP_SECONDS / 2);
    has_effect.then(|| instant(format!("all masters by {seen:?} s")))
}
