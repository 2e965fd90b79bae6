//! What a run has shown.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::Cell;
use crate::check::{Gone, Span};
use crate::faults::Expect;
use crate::ground::Store;
use crate::storm::{Passed, Strike};
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
    /// For how long at most a lock that somebody wanted was held by nobody, where there was no fault.
    pub longest_idle: Duration,
    /// Who was seen waiting, and was in turn.
    pub in_turn: usize,
    /// Acquires of what the owner held already.
    pub nested: usize,
    /// How often somebody tried in vain to renew and to release what he did not hold.
    pub meddled: usize,
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
    check::ended(told)?;
    check::nesting(told)?;
    let all = holds(told)?;
    let mut figures = figures(cell, passed, all.len());
    figures.longest_idle = idle(cell, passed, &all)?;
    bystander(cell, passed)?;
    check::trust(told, cell.store.trust())?;
    check::deadlines(told, |hand| passed.patience.get(&hand).copied(), SLACK + cell.bound)?;
    match cell.expect {
        Expect::Tokens => (figures.overlaps, figures.longest_overlap) = tokens(&all, cell)?,
        Expect::Exclusion | Expect::Refusal => {
            let seen = seen(cell, passed);
            figures.in_turn = seen.len();
            check::all(&[told, &seen[..]].concat())?;
            check::ghosts(&passed.looks, told, &troubles(passed), gone_within(cell))?;
        }
    }
    if cell.expect == Expect::Refusal {
        refusals(&all, passed)?;
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
        longest_idle: Duration::ZERO,
        in_turn: 0,
        nested: count(|what| matches!(what, What::Nested { .. })),
        meddled: passed.meddled,
        slowest_recovery: passed.strikes.iter().map(|strike| strike.recovery).max().unwrap_or_default(),
        bound: cell.bound,
        seen,
    }
}

fn troubles(passed: &Passed) -> Vec<Span> {
    passed.strikes.iter().map(Strike::trouble).collect()
}

/// Whatever was missed, the end of a lease makes it good.
fn idle(cell: &Cell, passed: &Passed, all: &[Hold]) -> Result<Duration> {
    let (told, troubles, end, bound) = (&passed.told, troubles(passed), passed.time.1, cell.store.lease() + SLACK);
    check::idle(told, all, &troubles, end, bound)?;
    Ok(check::idle_time(told, all, &troubles, end).0)
}

/// Where one place knows, who was told that his release is done is gone from it. Others, and those who gave up while nobody
/// answered, are gone by the end of a lease.
fn gone_within(cell: &Cell) -> Gone {
    let lease = cell.store.lease() + SLACK;
    let released = match cell.store {
        Store::File | Store::Redis | Store::Plain | Store::ZooKeeper => Duration::ZERO,
        _ => lease,
    };
    Gone { released, given_up: lease }
}

/// What was somebody else's is as it was, or gone with everything.
fn bystander(cell: &Cell, passed: &Passed) -> Result<()> {
    let may_be_gone = cell.expect == Expect::Tokens || cell.store == Store::Redlock;
    ensure!(passed.gone == 0 || may_be_gone, "{} things of somebody else are gone", passed.gone);
    Ok(())
}

/// Faults that cost nobody his place but whom they strike: who was killed is not granted, and who was stopped waits for longer.
const KEEP_PLACES: [&str; 6] =
    ["holder-killed", "waiter-killed", "killed-at-step", "holder-stopped", "waiter-stopped", "stopped-at-step"];

/// Who was seen waiting, and lost his place neither to a fault nor to its being slow: a claim that is not renewed in time gets in line
/// anew.
fn seen(cell: &Cell, passed: &Passed) -> Vec<Event> {
    if !in_order(cell.store) {
        return Vec::new();
    }
    let lease = u64::try_from(cell.store.lease().as_nanos()).unwrap_or(u64::MAX);
    let troubles = if KEEP_PLACES.contains(&cell.fault.name) { Vec::new() } else { troubles(passed) };
    let cycles = check::cycles(&passed.told);
    let waited = |event: &Event| -> Option<Span> {
        let own = cycles.get(&event.hand)?.iter().rev().find(|cycle| cycle.asked < event.at)?;
        Some((own.asked, own.granted?))
    };
    let is_kept = |event: &Event| {
        waited(event).is_some_and(|(asked, granted)| {
            let meets = |trouble: &Span| trouble.0 < granted && asked < trouble.1 + lease;
            granted - asked < lease / 2 && !troubles.iter().any(meets)
        })
    };
    let seen = check::seen(&passed.looks, &passed.told, |hand| !passed.patience.contains_key(&hand));
    seen.into_iter().filter(is_kept).collect()
}

/// Whether lines are kept in order of arrival.
fn in_order(store: Store) -> bool {
    !matches!(store, Store::Plain | Store::Redlock)
}

/// A third of a lease, when the next renewal is due, and as long for its answer.
fn heard_within(cell: &Cell) -> Duration {
    cell.store.lease() + SLACK
}

/// How many pairs held at once, and for how long at most.
fn tokens(all: &[Hold], cell: &Cell) -> Result<(usize, Duration)> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    let (mut count, mut longest) = (0, Duration::ZERO);
    for one_name in sorted.chunk_by(|one, other| one.name == other.name) {
        let fault = check::tokens_over_loss(one_name, cell.store.token_slack());
        fault.or_else(|| check::heard(one_name, heard_within(cell))).map_or(Ok(()), Err)?;
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
    let (begin, end) = passed.time;
    let troubled: Duration = troubles(passed).into_iter().map(|(from, to)| Duration::from_nanos(to - from)).sum();
    let peace = Duration::from_nanos(end - begin).saturating_sub(troubled);
    let load = if cell.expect == Expect::Exclusion { 1.0 } else { SLOWER } * cell.store.load_min();
    let (count, least) = (f64::from(u32::try_from(figures.acquisitions)?), load * peace.as_secs_f64());
    ensure!(count >= least, "only {count} acquisitions, and not {least:.0} in {peace:.1?} of peace");
    ensure!(figures.faults >= cell.fault.least, "only {} faults had an effect", figures.faults);
    Ok(())
}
