//! What a run has shown.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::Cell;
use crate::faults::Expect;
use crate::storm::Passed;
use crate::{Event, Hold, What, check, holds};

/// What a busy machine adds to a promised time.
const SLACK: Duration = Duration::from_secs(3);
/// Of the load in peace: with one who holds for long, and with some who are refused.
const SLOWER: f64 = 0.2;

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The store.
    pub store: &'static str,
    /// The fault.
    pub fault: &'static str,
    /// What is promised: C, T or R.
    pub expect: char,
    /// The seed of its choices.
    pub seed: u64,
    /// How long it took in all.
    pub took: Duration,
    /// How often locks were granted.
    pub acquisitions: usize,
    /// How often the fault had an effect.
    pub faults: usize,
    /// Holds that ended before they were released.
    pub lost: usize,
    /// Who asked and was refused.
    pub refused: usize,
    /// Who asked and gave up waiting.
    pub gave_up: usize,
    /// Pairs that held at once where that is allowed.
    pub overlaps: usize,
    /// The longest of these.
    pub longest_overlap: Duration,
    /// How long after a fault the last lock was granted again, at most.
    pub slowest_recovery: Duration,
    /// The bound on that.
    pub bound: Duration,
    /// What showed the effect of each fault.
    pub seen: Vec<String>,
}

/// Puts what was told through all checkers.
///
/// # Errors
/// With the first promise that was broken, and if too little happened to show anything.
pub fn judge(cell: &Cell, passed: &Passed) -> Result<Figures> {
    let told = &passed.told;
    let all = holds(told)?;
    let mut figures = figures(cell, passed, all.len());
    check::trust(told, cell.store.trust())?;
    check::deadlines(told, |hand| passed.patience.get(&hand).copied(), SLACK + cell.bound)?;
    match cell.expect {
        Expect::Exclusion => drop(check::all(told)?),
        Expect::Tokens => (figures.overlaps, figures.longest_overlap) = tokens(&all, heard_within(cell))?,
        Expect::Refusal => {
            check::all(told)?;
            refusals(&all, passed)?;
        }
    }
    enough(cell, passed, &figures)?;
    Ok(figures)
}

fn figures(cell: &Cell, passed: &Passed, acquisitions: usize) -> Figures {
    let count = |wanted: fn(&What) -> bool| passed.told.iter().filter(|event| wanted(&event.what)).count();
    let seen = passed.strikes.iter().filter_map(|strike| strike.struck.as_ref().map(|struck| struck.seen.clone()));
    let seen: Vec<String> = seen.collect();
    Figures {
        store: cell.store.name(),
        fault: cell.fault.name,
        expect: cell.expect.letter(),
        seed: 0,
        took: Duration::ZERO,
        acquisitions,
        faults: seen.len(),
        lost: count(|what| matches!(what, What::RanOut | What::Gone)),
        refused: count(|what| *what == What::Refused),
        gave_up: count(|what| *what == What::GaveUp),
        overlaps: 0,
        longest_overlap: Duration::ZERO,
        slowest_recovery: passed.strikes.iter().map(|strike| strike.recovery).max().unwrap_or_default(),
        bound: cell.bound,
        seen,
    }
}

/// A third of a lease, when the next renewal is due, and as long for its answer.
fn heard_within(cell: &Cell) -> Duration {
    cell.store.lease() + SLACK
}

/// How many pairs held at once, and for how long at most.
fn tokens(all: &[Hold], bound: Duration) -> Result<(usize, Duration)> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    let (mut count, mut longest) = (0, Duration::ZERO);
    for one_name in sorted.chunk_by(|one, other| one.name == other.name) {
        check::tokens_over_loss(one_name).or_else(|| check::heard(one_name, bound)).map_or(Ok(()), Err)?;
        for (_, time) in check::overlap_times(one_name) {
            (count, longest) = (count + 1, longest.max(time));
        }
    }
    Ok((count, longest))
}

fn refusals(all: &[Hold], passed: &Passed) -> Result<()> {
    for struck in passed.strikes.iter().filter_map(|strike| strike.struck.as_ref()) {
        check::refusal(all, struck.since, struck.until).map_or(Ok(()), Err)?;
    }
    let within = |event: &&Event| passed.strikes.iter().any(|strike| strike.at < event.at);
    let told = passed.told.iter().filter(within).any(|event| matches!(event.what, What::Refused | What::GaveUp));
    ensure!(told, "nobody was refused");
    Ok(())
}

/// A run with too little work, or too few faults, shows nothing.
fn enough(cell: &Cell, passed: &Passed, figures: &Figures) -> Result<()> {
    let trouble = |strike: &crate::storm::Strike| {
        let until = strike.struck.as_ref().map_or(strike.at, |struck| struck.over);
        Duration::from_nanos(until - strike.at) + strike.recovery
    };
    let (begin, end) = passed.time;
    let troubled: Duration = passed.strikes.iter().map(trouble).sum();
    let peace = Duration::from_nanos(end - begin).saturating_sub(troubled);
    let load = if cell.expect == Expect::Exclusion { 1.0 } else { SLOWER } * cell.store.load_min();
    let (count, least) = (f64::from(u32::try_from(figures.acquisitions)?), load * peace.as_secs_f64());
    ensure!(count >= least, "only {count} acquisitions, and not {least:.0} in {peace:.1?} of peace");
    ensure!(figures.faults >= cell.fault.least, "only {} faults had an effect", figures.faults);
    Ok(())
}
