//! Faults of clocks: those of servers and those of workers.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Clock, Postgres, Redis};

use super::{ended_now, instant, millis, wait};
use crate::backends::Capability;
use crate::fault_run::{Effect, FaultRun};
use crate::{Random, now, until_within};

/// In seconds: more than any lease.
pub(super) const STEP: i64 = 20;
/// In seconds: more than the time for which a server remembers a name, and more than tokens may be
/// ahead of the clocks when no master has them.
pub(super) const TWO_DAYS: i64 = 2 * 24 * 3_600;

/// Steps the clocks of servers. Steps add up if a server is drawn again.
pub(super) fn stepped(run: &FaultRun, random: &mut Random, seconds: i64) -> Result<Option<Effect>> {
    step(run, &wrong_servers(run, random), seconds)
}

/// Steps the clocks of these servers. It has an effect if all of them report the step.
fn step(run: &FaultRun, which: &[usize], seconds: i64) -> Result<Option<Effect>> {
    let mut seen = Vec::new();
    for &number in which {
        let before = ahead(run, number)?;
        clock(run, number).step(seconds);
        seen.push((ahead(run, number)? - before) / 1_000_000);
    }

    let has_effect = seen.iter().all(|seen| (seen - seconds).abs() < STEP / 2);
    Ok(has_effect.then(|| instant(format!("servers {which:?} by {seen:?} s"))))
}

/// Draws the servers whose clocks become wrong. Of the masters these are always the same two, so
/// that a majority stays right. Elsewhere any clock may be wrong.
fn wrong_servers(run: &FaultRun, random: &mut Random) -> Vec<usize> {
    if run.cell.backend.has(Capability::IndependentServers) {
        vec![0, 1]
    } else {
        run.minority(random)
    }
}

/// How far a server's clock is ahead of the time since boot, in microseconds.
fn ahead(run: &FaultRun, number: usize) -> Result<i64> {
    let time = match run.testbed.servers_of::<Postgres>().get(number) {
        Some(server) => server.time(),
        None => run.testbed.servers_of::<Redis>()[number].time(),
    };
    Ok(time - i64::try_from(now() / 1_000)?)
}

fn clock(run: &FaultRun, number: usize) -> &Clock {
    match run.testbed.servers_of::<Postgres>().get(number) {
        Some(server) => server.clock(),
        None => run.testbed.servers_of::<Redis>()[number].clock(),
    }
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
    let which = wrong_servers(run, random);
    let time = run.lease() + millis(random, 0, 1_000);
    let set = |gain| {
        for &number in &which {
            clock(run, number).gain(gain);
        }
    };
    let all_ahead = || {
        let ahead = which.iter().map(|&number| ahead(run, number));
        ahead.collect::<Result<Vec<_>>>()
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

/// Steps the clocks while no client is connected. A client that has read a clock before the step
/// proposes tokens by that reading until it connects again.
pub(super) fn all_forward(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let routes = [&run.testbed.wires, &run.testbed.holder_route.wires];
    for wire in routes.into_iter().flatten() {
        wire.refuse(true);
        wire.partition();
    }

    let effect = step(run, &all_servers(run), TWO_DAYS)?;
    for wire in routes.into_iter().flatten() {
        wire.refuse(false);
    }
    Ok(effect)
}

pub(super) fn all_back(run: &mut FaultRun, _: &mut Random) -> Result<Option<Effect>> {
    let effect = step(run, &all_servers(run), -TWO_DAYS)?;
    for master in run.testbed.servers_of::<Redis>() {
        master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        master.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    Ok(effect)
}

fn all_servers(run: &FaultRun) -> Vec<usize> {
    (0..run.testbed.wires.len()).collect()
}
