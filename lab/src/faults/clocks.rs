//! Faults of clocks: of servers, and of those who take locks.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Clock;

use super::{at_once, last, lasted, millis};
use crate::ground::Store;
use crate::storm::{Storm, Struck};
use crate::{Random, now, until_within};

/// By more than any lease lasts.
const STEP_SECONDS: i64 = 20;

pub(super) fn forward(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    stepped(storm, random, STEP_SECONDS)
}

pub(super) fn back(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    stepped(storm, random, -STEP_SECONDS)
}

/// By more than a name is remembered for.
const STEP_DAYS: i64 = 2 * 24 * 3_600;

pub(super) fn forward_days(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    stepped(storm, random, STEP_DAYS)
}

pub(super) fn back_days(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    stepped(storm, random, -STEP_DAYS)
}

/// Steps add up where a server is struck again.
fn stepped(storm: &Storm, random: &mut Random, step: i64) -> Result<Option<Struck>> {
    let which = struck(storm, random);
    let mut seen = Vec::new();
    for &number in &which {
        let before = ahead(storm, number)?;
        storm.ground.clock(number)?.step(step);
        seen.push((ahead(storm, number)? - before) / 1_000_000);
    }
    let has_effect = seen.iter().all(|seen| (seen - step).abs() < STEP_SECONDS / 2);
    Ok(has_effect.then(|| at_once(format!("server {which:?} by {seen:?} s"))))
}

/// Masters whose clocks stay wrong are a minority all the time. Elsewhere any may be wrong.
fn struck(storm: &Storm, random: &mut Random) -> Vec<usize> {
    if storm.ground.store == Store::Redlock { vec![0, 1] } else { storm.some(random) }
}

/// How much later it is for a server than since the machine was started, in microseconds.
fn ahead(storm: &Storm, number: usize) -> Result<i64> {
    Ok(storm.ground.time(number)? - i64::try_from(now() / 1_000)?)
}

/// In turn four times as fast, when a lease is over before it is renewed, and twice as fast, when it is not quite.
pub(super) fn fast(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    slewed(storm, random, if storm.strikes.len().is_multiple_of(2) { 3_000_000 } else { 1_000_000 })
}

/// Half as fast.
pub(super) fn slow(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    slewed(storm, random, -500_000)
}

/// For a lease and up to a second clocks gain so many millionths.
fn slewed(storm: &Storm, random: &mut Random, gain: i64) -> Result<Option<Struck>> {
    let which = struck(storm, random);
    let time = storm.lease() + millis(random, 0, 1_000);
    let run = |gain| which.iter().try_for_each(|&number| storm.ground.clock(number).map(|clock| clock.gain(gain)));
    let all_ahead = || which.iter().map(|&number| ahead(storm, number)).collect::<Result<Vec<_>>>();
    run(gain)?;
    let (since, before) = (now(), all_ahead()?);
    last(time);
    let gained: Vec<i64> = all_ahead()?.iter().zip(before).map(|(ahead, before)| ahead - before).collect();
    let struck = lasted(since, format!("server {which:?} by {gained:?} µs"));
    run(0)?;
    let wanted = i64::try_from((struck.until - since) / 1_000)? * gain / 1_000_000;
    Ok(gained.iter().all(|gained| (gained - wanted).abs() < wanted.abs() / 4).then_some(struck))
}

/// Seconds by which the wall clock of one who takes locks may be wrong.
const WRONG: [i64; 5] = [0, 20, -20, 3_600, -3_600];
/// Within this time all have asked for a lock again, and read their clock for that.
const READ_MAX: Duration = Duration::from_secs(10);

/// Each of the crew has another time of day from now on.
pub(super) fn own_wall(storm: &mut Storm, random: &mut Random) -> Result<Option<Struck>> {
    let since = now();
    let clocks = &storm.ground.clocks;
    let set = |clock: &Clock| {
        let ahead = WRONG[usize::try_from(random.below(WRONG.len() as u64)).expect("a few")];
        clock.set(ahead);
        ahead
    };
    let ahead: Vec<i64> = clocks.iter().map(set).collect();
    let is_read = || clocks.iter().all(|clock| clock.readings() > 0);
    let read = until_within(READ_MAX, "all to read their clocks", || Ok(is_read().then_some(())));
    Ok(read.is_ok().then(|| lasted(since, format!("ahead by {ahead:?} s, and read"))))
}

/// By more than tokens may be ahead of the clocks without a master that has them.
const TWO_DAYS_SECONDS: i64 = 2 * 24 * 60 * 60;

pub(super) fn all_forward(storm: &mut Storm, _random: &mut Random) -> Result<Option<Struck>> {
    all_stepped(storm, TWO_DAYS_SECONDS)
}

pub(super) fn all_back(storm: &mut Storm, _random: &mut Random) -> Result<Option<Struck>> {
    all_stepped(storm, -TWO_DAYS_SECONDS)
}

fn all_stepped(storm: &Storm, step: i64) -> Result<Option<Struck>> {
    let mut seen = Vec::new();
    for number in 0..storm.ground.count() {
        let before = ahead(storm, number)?;
        storm.ground.clock(number)?.step(step);
        seen.push((ahead(storm, number)? - before) / 1_000_000);
    }
    for master in storm.ground.redis() {
        master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        master.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    let has_effect = seen.iter().all(|seen| (seen - step).abs() < STEP_SECONDS / 2);
    Ok(has_effect.then(|| at_once(format!("all masters by {seen:?} s"))))
}
