//! Whether a run could have found a bug: its faults met holds, and long ones cost a hold.

use anyhow::{Result, ensure};

use super::Cell;
use crate::Hold;
use crate::check::{losses_in, meets_hold, passed_on};
use crate::fault_run::{Effect, Outcome};

/// In nanoseconds: a worker checks its hold every millisecond, and a busy machine delays it.
const CHECKED_WITHIN: u64 = 100_000_000;

/// Checks that the faults of a run met holds. A fault that outlasts a lease must have cost a hold
/// on the stores that the fault names. With a cohort, a hold must have been passed on.
///
/// # Errors
/// If the run proves nothing.
pub(super) fn check(cell: &Cell, outcome: &Outcome, all: &[Hold]) -> Result<Power> {
    let power = measure(cell, outcome, all);
    ensure!(
        power.met >= cell.fault.min_effects,
        "only {} injections of the fault met a hold",
        power.met
    );

    ensure!(
        !cell.must_lose() || power.costly > 0,
        "no hold was lost, although the fault lasted for a lease or longer {} times",
        power.long
    );
    ensure!(
        !cell.must_open() || outcome.opened_during_faults > 0,
        "no new client could open the store during a fault"
    );
    ensure!(
        cell.backend.cohort.is_none() || !passed_on(all).is_empty(),
        "no hold was passed on"
    );
    Ok(power)
}

/// What the effects of a fault met.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Power {
    /// Effects during which a lock was held.
    pub(super) met: usize,
    /// Effects that lasted for a lease or longer.
    pub(super) long: usize,
    /// Effects of a lease or longer during which a hold was lost.
    pub(super) costly: usize,
}

fn measure(cell: &Cell, outcome: &Outcome, all: &[Hold]) -> Power {
    let lease = u64::try_from(cell.backend.lease.as_nanos()).unwrap_or(u64::MAX);
    let is_long = |effect: &&Effect| effect.until - effect.since >= lease;
    let is_costly = |effect: &&Effect| {
        losses_in(
            &outcome.events,
            (effect.since, effect.recovered),
            CHECKED_WITHIN,
        ) > 0
    };
    let meets = |effect: &&Effect| meets_hold(all, (effect.since, effect.until));

    Power {
        met: outcome.effects().filter(meets).count(),
        long: outcome.effects().filter(is_long).count(),
        costly: outcome.effects().filter(is_long).filter(is_costly).count(),
    }
}
