//! What a run has shown.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::Cell;
use crate::backends::Capability;
use crate::check::{GoneTimes, Span};
use crate::fault_run::{Injection, Outcome};
use crate::faults::Guarantee;
use crate::{Event, EventKind, Hold, check, holds};

/// What a busy machine adds to a promised time.
const SLACK: Duration = Duration::from_secs(3);
/// Of the load in peace: with one who holds for long, and with some who are refused.
const SLOWER: f64 = 0.2;

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The store.
    pub backend: &'static str,
    /// The fault.
    pub fault: &'static str,
    /// What is promised: C, T or R.
    pub guarantee: char,
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
    pub timed_out: usize,
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
    pub intrusions: usize,
    /// How long after a fault the last lock was granted again, at most.
    pub slowest_recovery: Duration,
    /// The bound on that.
    pub bound: Duration,
    /// What showed the effect of each fault.
    pub observed: Vec<String>,
}

/// Puts what was told through all checkers.
///
/// # Errors
/// With the first promise that was broken, and if too little happened to show anything.
pub fn check(cell: &Cell, outcome: &Outcome) -> Result<Figures> {
    let events = &outcome.events;
    check::ended(events)?;
    check::nesting(events)?;
    let all = holds(events)?;
    let mut figures = figures(cell, outcome, all.len());
    figures.longest_idle = idle(cell, outcome, &all)?;
    canary(cell, outcome)?;
    check::validity(events, cell.backend.profile().validity)?;
    check::deadlines(
        events,
        |thread| outcome.wait_limits.get(&thread).copied(),
        SLACK + cell.bound,
    )?;
    match cell.guarantee {
        Guarantee::TokensOnly => (figures.overlaps, figures.longest_overlap) = tokens(&all, cell)?,
        Guarantee::Exclusion | Guarantee::Refuses => {
            let seen = observed(cell, outcome);
            figures.in_turn = seen.len();
            check::all(&[events, &seen[..]].concat())?;
            check::stale_entries(
                &outcome.observations,
                events,
                &disturbed_spans(outcome),
                gone_within(cell),
            )?;
        }
    }
    if cell.guarantee == Guarantee::Refuses {
        refusals(&all, outcome)?;
    }
    check_minimums(cell, outcome, &figures)?;
    Ok(figures)
}

fn figures(cell: &Cell, outcome: &Outcome, acquisitions: usize) -> Figures {
    let count = |wanted: fn(&EventKind) -> bool| {
        outcome
            .events
            .iter()
            .filter(|event| wanted(&event.kind))
            .count()
    };
    let seen = outcome.injections.iter().filter_map(|injection| {
        injection
            .effect
            .as_ref()
            .map(|effect| effect.evidence.clone())
    });
    let seen: Vec<String> = seen.collect();
    Figures {
        backend: cell.backend.name(),
        fault: cell.fault.name,
        guarantee: cell.guarantee.letter(),
        seed: 0,
        took: Duration::ZERO,
        acquisitions,
        faults: seen.len(),
        lost: count(|kind| matches!(kind, EventKind::Expired | EventKind::Revoked)),
        refused: count(|kind| *kind == EventKind::Refused),
        timed_out: count(|kind| *kind == EventKind::TimedOut),
        overlaps: 0,
        longest_overlap: Duration::ZERO,
        longest_idle: Duration::ZERO,
        in_turn: 0,
        nested: count(|kind| matches!(kind, EventKind::Nested { .. })),
        intrusions: outcome.intrusions,
        slowest_recovery: outcome
            .injections
            .iter()
            .map(|injection| injection.recovery)
            .max()
            .unwrap_or_default(),
        bound: cell.bound,
        observed: seen,
    }
}

fn disturbed_spans(outcome: &Outcome) -> Vec<Span> {
    outcome
        .injections
        .iter()
        .map(Injection::disturbed)
        .collect()
}

/// Whatever was missed, the end of a lease makes it good.
fn idle(cell: &Cell, outcome: &Outcome, all: &[Hold]) -> Result<Duration> {
    let (events, disturbed, end, bound) = (
        &outcome.events,
        disturbed_spans(outcome),
        outcome.time.1,
        cell.backend.lease() + SLACK,
    );
    check::idle(events, all, &disturbed, end, bound)?;
    Ok(check::idle_time(events, all, &disturbed, end).0)
}

/// Where one place knows, who was told that his release is done is gone from it. Others, and those who gave up while nobody
/// answered, are gone by the end of a lease.
fn gone_within(cell: &Cell) -> GoneTimes {
    let lease = cell.backend.lease() + SLACK;
    let released = if cell.backend.has(Capability::ImmediateRemoval) {
        Duration::ZERO
    } else {
        lease
    };
    GoneTimes {
        released,
        given_up: lease,
    }
}

/// What was somebody else's is as it was, or gone with everything.
fn canary(cell: &Cell, outcome: &Outcome) -> Result<()> {
    let may_be_gone =
        cell.guarantee == Guarantee::TokensOnly || cell.backend.has(Capability::Masters);
    ensure!(
        outcome.missing_canaries == 0 || may_be_gone,
        "{} things of somebody else are gone",
        outcome.missing_canaries
    );
    Ok(())
}

/// Faults that cost nobody his place but whom they strike: who was killed is not granted, and who was stopped waits for longer.
const KEEP_POSITIONS: [&str; 6] = [
    "holder-killed",
    "waiter-killed",
    "killed-at-step",
    "holder-paused",
    "waiter-paused",
    "paused-at-step",
];

/// Who was seen waiting, and lost his place neither to a fault nor to its being slow: a claim that is not renewed in time gets in line
/// anew.
fn observed(cell: &Cell, outcome: &Outcome) -> Vec<Event> {
    if !cell.backend.has(Capability::FifoQueue) {
        return Vec::new();
    }
    let lease = u64::try_from(cell.backend.lease().as_nanos()).unwrap_or(u64::MAX);
    let disturbed = if KEEP_POSITIONS.contains(&cell.fault.name) {
        Vec::new()
    } else {
        disturbed_spans(outcome)
    };
    let cycles = check::cycles(&outcome.events);
    let waited = |event: &Event| -> Option<Span> {
        let own = cycles
            .get(&event.thread)?
            .iter()
            .rev()
            .find(|cycle| cycle.requested < event.at)?;
        Some((own.requested, own.granted?))
    };
    let is_kept = |event: &Event| {
        waited(event).is_some_and(|(requested, granted)| {
            let meets = |on_error: &Span| on_error.0 < granted && requested < on_error.1 + lease;
            granted - requested < lease / 2 && !disturbed.iter().any(meets)
        })
    };
    let seen = check::queue_positions(&outcome.observations, &outcome.events, |thread| {
        !outcome.wait_limits.contains_key(&thread)
    });
    seen.into_iter().filter(is_kept).collect()
}

/// A third of a lease, when the next renewal is due, and as long for its answer.
fn loss_notified_within(cell: &Cell) -> Duration {
    cell.backend.lease() + SLACK
}

/// How many pairs held at once, and for how long at most.
fn tokens(all: &[Hold], cell: &Cell) -> Result<(usize, Duration)> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    let (mut count, mut longest) = (0, Duration::ZERO);
    for one_name in sorted.chunk_by(|one, other| one.name == other.name) {
        let fault = check::tokens_over_loss(one_name, cell.backend.profile().token_slack);
        fault
            .or_else(|| check::loss_notified(one_name, loss_notified_within(cell)))
            .map_or(Ok(()), Err)?;
        for (_, time) in check::overlap_times(one_name) {
            (count, longest) = (count + 1, longest.max(time));
        }
    }
    Ok((count, longest))
}

fn refusals(all: &[Hold], outcome: &Outcome) -> Result<()> {
    for effect in outcome
        .injections
        .iter()
        .filter_map(|injection| injection.effect.as_ref())
    {
        check::refusal(all, effect.since, effect.until).map_or(Ok(()), Err)?;
    }
    let within = |event: &&Event| {
        outcome
            .injections
            .iter()
            .any(|injection| injection.at < event.at)
    };
    let events = outcome
        .events
        .iter()
        .filter(within)
        .any(|event| matches!(event.kind, EventKind::Refused | EventKind::TimedOut));
    ensure!(events, "nobody was refused");
    Ok(())
}

/// A run with too little work, or too few faults, shows nothing.
fn check_minimums(cell: &Cell, outcome: &Outcome, figures: &Figures) -> Result<()> {
    let (begin, end) = outcome.time;
    let troubled: Duration = disturbed_spans(outcome)
        .into_iter()
        .map(|(from, to)| Duration::from_nanos(to - from))
        .sum();
    let peace = Duration::from_nanos(end - begin).saturating_sub(troubled);
    let load = if cell.guarantee == Guarantee::Exclusion {
        1.0
    } else {
        SLOWER
    } * cell.backend.profile().load_min;
    let (count, least) = (
        f64::from(u32::try_from(figures.acquisitions)?),
        load * peace.as_secs_f64(),
    );
    ensure!(
        count >= least,
        "only {count} acquisitions, and not {least:.0} in {peace:.1?} of peace"
    );
    ensure!(
        figures.faults >= cell.fault.min_effects,
        "only {} faults had an effect",
        figures.faults
    );
    Ok(())
}
