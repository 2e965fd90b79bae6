//! The check of one run.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::{Cell, order, power};
use crate::backends::Capability;
use crate::check::{GoneTimes, Span, extended};
use crate::fault_run::{Injection, JOBS, Outcome};
use crate::faults::{Disturbed, Guarantee, Requirement};
use crate::{Event, EventKind, Hold, check, holds};
use leasehold::{CrashRelease, Guarantees};

/// What a busy machine adds to a guaranteed time.
pub(super) const SLACK: Duration = Duration::from_secs(3);
/// How long PostgreSQL takes at most to write the releases that nobody waited for.
const UNSYNCED: Duration = Duration::from_secs(1);
/// The share of the normal load that remains with a long holder, or with refused requests.
const SLOWER: f64 = 0.2;

/// The figures of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The store.
    pub backend: &'static str,
    /// The fault.
    pub fault: &'static str,
    /// The letter of the guarantee: E, T or R.
    pub guarantee: char,
    /// The seed of the random choices.
    pub seed: u64,
    /// How long the run took.
    pub took: Duration,
    /// The number of grants.
    pub acquisitions: usize,
    /// How often the fault had an effect and met a hold.
    pub faults: usize,
    /// Holds that ended before their release.
    pub lost: usize,
    /// New clients that opened the store while a fault lasted.
    pub opened: usize,
    /// Refused requests.
    pub refused: usize,
    /// Requests whose wait limit passed.
    pub timed_out: usize,
    /// For how long each pair of holds overlapped where the guarantee permits it.
    pub overlap_times: Vec<Duration>,
    /// The longest time for which a lock with a waiter was not held, outside of faults.
    pub longest_idle: Duration,
    /// The median time from a release to the grant of the next waiter.
    pub hand_over: Duration,
    /// Waiters that were observed in the queue and granted in order.
    pub in_turn: usize,
    /// Jobs that were completed, and how often one ran again after that.
    pub jobs: (usize, usize),
    /// Nested acquires.
    pub nested: usize,
    /// How often the intruder failed to renew and release another client's hold, as it should.
    pub intrusions: usize,
    /// The longest time from the end of a fault until the last lock was granted again.
    pub slowest_recovery: Duration,
    /// The bound of that time.
    pub bound: Duration,
    /// The evidence of each effect.
    pub observed: Vec<String>,
}

/// Checks the history of a run with every checker that applies to the cell.
///
/// # Errors
/// The first violation, or too little work or too few effects.
pub fn check(cell: &Cell, outcome: &Outcome) -> Result<Figures> {
    let events = &outcome.events;
    check::ended(events)?;
    check::nesting(events)?;
    let all = holds(events)?;
    let mut figures = figures(cell, outcome, all.len());
    figures.longest_idle = idle(cell, outcome, &all)?;
    canary(cell, outcome)?;
    figures.jobs = jobs(cell, outcome)?;
    check::validity(events, longest_validity(cell, &outcome.guarantees))?;
    check::waits(events, &disturbed_spans(outcome), outcome.time.1, |cycle| {
        let limit = outcome.wait_limits.get(&cycle.thread);
        limit.map_or(Duration::MAX, |limit| *limit + SLACK)
    })?;

    match cell.guarantee {
        Guarantee::TokensOnly => {
            figures.overlap_times = tokens(&all, cell, outcome)?;
        }
        Guarantee::Exclusion | Guarantee::Refuses => {
            let observed = observed(cell, outcome);
            figures.in_turn = observed.len();
            check::all(&[events, &observed[..]].concat())?;
            figures.hand_over = order::check(cell, outcome, &all, &observed)?;
            check::stale_entries(
                &outcome.observations,
                events,
                &disturbed_spans(outcome),
                gone_within(cell),
            )?;
        }
    }
    if cell.guarantee == Guarantee::Refuses {
        refusals(&all, cell, outcome)?;
    }
    figures.faults = power::check(cell, outcome, &all)?.met;
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
    let seen: Vec<String> = outcome
        .effects()
        .map(|effect| effect.evidence.clone())
        .collect();

    Figures {
        backend: cell.backend.name,
        fault: cell.fault.name,
        guarantee: cell.guarantee.letter(),
        acquisitions,
        faults: seen.len(),
        lost: count(|kind| matches!(kind, EventKind::Expired | EventKind::Revoked)),
        refused: outcome.events.iter().copied().filter(is_refusal).count(),
        timed_out: count(|kind| *kind == EventKind::TimedOut),
        nested: count(|kind| matches!(kind, EventKind::Nested { .. })),
        intrusions: outcome.intrusions,
        slowest_recovery: outcome
            .injections
            .iter()
            .map(|injection| injection.recovery)
            .max()
            .unwrap_or_default(),
        bound: cell.bound,
        opened: outcome.opened_during_faults,
        observed: seen,
        ..Figures::default()
    }
}

pub(super) fn disturbed_spans(outcome: &Outcome) -> Vec<Span> {
    outcome
        .injections
        .iter()
        .map(Injection::disturbed)
        .collect()
}

/// Checks idle time. The detection of a crash repairs every missed notification.
fn idle(cell: &Cell, outcome: &Outcome, all: &[Hold]) -> Result<Duration> {
    let events = &outcome.events;
    let disturbed = disturbed_spans(outcome);
    let end = outcome.time.1;
    let validity = longest_validity(cell, &outcome.guarantees);
    let bound = validity.unwrap_or(cell.backend.lease) + SLACK;
    check::idle(events, all, &disturbed, end, bound)
}

/// Checks that jobs are completed once, by a claim that held. A store that loses data may lose what
/// was completed, and so may a replica that takes the place of its master. Returns how many jobs
/// were completed, and how many runs followed the completion of their job.
fn jobs(cell: &Cell, outcome: &Outcome) -> Result<(usize, usize)> {
    let events = &outcome.events;
    let loses = cell.guarantee == Guarantee::TokensOnly
        || cell
            .backend
            .has_any(&[Capability::Replica, Capability::Failover]);
    let again = check::second_runs(events)?.len();
    if !loses {
        check::completed_once(events)?;
    }

    let is_completion = |event: &&Event| matches!(event.kind, EventKind::Completed { .. });
    let completed = events.iter().filter(is_completion).count();
    let tried = events.iter().any(|event| event.name == JOBS);
    ensure!(completed > 0 || !tried, "no job was completed");
    Ok((completed, again))
}

/// Whether a request was refused. That a job is done is no refusal of the store.
fn is_refusal(event: &Event) -> bool {
    event.kind == EventKind::Refused && event.name != JOBS
}

/// How soon claims must be gone. Where one server decides, a released claim is gone when its
/// release returns. Elsewhere, and after a timeout without a reply, a claim is gone after a lease.
fn gone_within(cell: &Cell) -> GoneTimes {
    let lease = cell.backend.lease + SLACK;
    let released = if cell.backend.has(Capability::ImmediateRemoval) {
        Duration::ZERO
    } else {
        lease
    };
    GoneTimes {
        released,
        given_up: lease,
        taken_back: if cell.backend.has(Capability::UnsyncedReleases) {
            UNSYNCED
        } else {
            Duration::ZERO
        },
    }
}

/// Checks that the canaries are unchanged, or deleted with all data.
fn canary(cell: &Cell, outcome: &Outcome) -> Result<()> {
    let may_be_gone =
        cell.guarantee == Guarantee::TokensOnly || cell.backend.has(Capability::IndependentServers);
    ensure!(
        outcome.missing_canaries == 0 || may_be_gone,
        "{} canaries are missing",
        outcome.missing_canaries
    );
    Ok(())
}

/// The observed waiters that lost their position neither to a fault nor to a late renewal. A claim
/// that is not renewed in time queues again.
fn observed(cell: &Cell, outcome: &Outcome) -> Vec<Event> {
    if !cell.backend.has(Capability::FifoQueue) {
        return Vec::new();
    }
    let lease = u64::try_from(cell.backend.lease.as_nanos()).unwrap_or(u64::MAX);
    let disturbed = if cell.fault.disturbs == Disturbed::OneWorker {
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

/// The longest validity of a guard after its last renewal: what the store guarantees about a crash,
/// because a guard must end before the store may grant to another client. `None` where only the end
/// of the process ends a hold.
fn longest_validity(cell: &Cell, guarantees: &Guarantees) -> Option<Duration> {
    let lease = cell.backend.requested_lease;
    // A client that opens the store without the right to check connections detects no crashes.
    if cell.fault.requires == Requirement::DedicatedUser {
        return Some(lease);
    }

    match guarantees.crash_release {
        CrashRelease::Immediate => None,
        CrashRelease::Within { grace, .. } => Some(lease.min(grace)),
        _ => Some(lease),
    }
}

/// How long a hold may continue after another was granted. The store no longer has the first claim
/// then, so each later renewal of it fails. The last renewal was sent before that, and its validity
/// ends in time however busy the machine is. Where a connection or a session proves a hold, the
/// client reads the claim itself every third of a lease. Where validity has no end, the next
/// renewal reports the loss.
fn loss_notified_within(cell: &Cell, guarantees: &Guarantees) -> Duration {
    let lease = cell.backend.lease;
    longest_validity(cell, guarantees).map_or(lease + SLACK, |validity| validity + lease / 3)
}

/// How long a fault has consequences after its end: a holder is not notified of its loss yet, or the
/// claims of killed and cut-off clients are still in the queue. `None` where no checker needs time
/// without faults.
pub(crate) fn settles_within(cell: &Cell, guarantees: &Guarantees) -> Option<Duration> {
    if cell.guarantee == Guarantee::TokensOnly {
        return Some(loss_notified_within(cell, guarantees));
    }
    let is_ordered = cell.backend.has(Capability::FifoQueue);
    is_ordered.then_some(cell.backend.lease)
}

/// The faults with their consequences, which last for this time and end before the end of the run.
pub(super) fn unsettled_spans(outcome: &Outcome, after: Duration) -> Vec<Span> {
    let mut spans = extended(&disturbed_spans(outcome), after);
    for (_, to) in &mut spans {
        *to = outcome.settled.min(*to);
    }
    spans
}

/// Returns for how long holds overlapped.
fn tokens(all: &[Hold], cell: &Cell, outcome: &Outcome) -> Result<Vec<Duration>> {
    let bound = loss_notified_within(cell, &outcome.guarantees);
    let permitted = unsettled_spans(outcome, bound);
    let mut sorted = all.to_vec();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));
    let mut times = Vec::new();

    for one_name in sorted.chunk_by(|one, other| one.name == other.name) {
        let fault = check::tokens_over_loss(one_name, cell.backend.token_slack);
        fault
            .or_else(|| check::loss_notified(one_name, &permitted, bound))
            .map_or(Ok(()), Err)?;
        times.extend(check::overlap_times(one_name).map(|(_, time)| time));
    }

    Ok(times)
}

fn refusals(all: &[Hold], cell: &Cell, outcome: &Outcome) -> Result<()> {
    let mut requested = all.to_vec();
    if cell.backend.cohort.is_some() {
        // A client passes its hold on to another task without a request.
        let passed_on = check::passed_on(all);
        requested.retain(|hold| !passed_on.contains(&(hold.name, hold.token)));
    }
    let refusals: Vec<Event> = outcome.events.iter().copied().filter(is_refusal).collect();
    for effect in outcome.effects() {
        let span = (effect.since, effect.until);
        check::refusal(&requested, span).map_or(Ok(()), Err)?;
        let is_short = Duration::from_nanos(span.1 - span.0) < cell.backend.lease;
        ensure!(
            is_short || check::refused_in(&refusals, span),
            "no request failed during a fault of a lease or longer"
        );
    }
    Ok(())
}

/// Checks that there was enough work and that the fault had enough effects. Otherwise the run
/// proves nothing.
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
    } * cell.backend.load_min;
    let count = f64::from(u32::try_from(figures.acquisitions)?);
    let least = load * peace.as_secs_f64();

    ensure!(
        count >= least,
        "only {count} acquisitions instead of {least:.0} in {peace:.1?} without a fault"
    );
    ensure!(
        figures.faults >= cell.fault.min_effects,
        "the fault had only {} effects",
        figures.faults
    );

    Ok(())
}
