//! Whether a run could have found a bug: its faults met holds, and long ones cost a hold.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::Cell;
use crate::Hold;
use crate::check::{losses_in, meets_hold};
use crate::fault_run::{Effect, Injection, Outcome};

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

/// The names and tokens of the holds that were passed on. The store's tokens are times, so only a
/// pass has the next token.
pub(super) fn passed_on(all: &[Hold]) -> BTreeSet<(u16, u64)> {
    let tokens: BTreeSet<_> = all.iter().map(|hold| (hold.name, hold.token)).collect();
    let follows = |&(name, token): &(u16, u64)| tokens.contains(&(name, token - 1));

    tokens.iter().copied().filter(follows).collect()
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
    // A hold that an operator breaks ends before the request returns.
    let meets = |injection: &&Injection| {
        let effect = injection.effect.as_ref();
        effect.is_some_and(|effect| meets_hold(all, (injection.at, effect.until)))
    };

    Power {
        met: outcome.injections.iter().filter(meets).count(),
        long: outcome.effects().filter(is_long).count(),
        costly: outcome.effects().filter(is_long).filter(is_costly).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::samples::mutex;

    #[test]
    fn only_holds_with_successive_tokens_were_passed_on() {
        let granted = [mutex(1_000, 10, 20), mutex(1_008, 20, 30)];
        assert_eq!(passed_on(&granted).len(), 0);

        let passed = [mutex(1_001, 20, 30), mutex(1_000, 10, 20)];
        assert_eq!(passed_on(&passed).len(), 1);
    }
}
