//! When and how a command is stopped that is about to lose its lock.

use std::time::Duration;

use leasehold::{Crash, Error, Guard, Loss, Promises, Result};

use crate::commands::{OnLost, Run};
use crate::words::as_term;

const GRACE: Duration = Duration::from_secs(5);
/// From sending KILL to the last process of the group being gone, on a busy machine.
const MARGIN_MAX: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    pub(crate) on_lost: OnLost,
    pub(crate) grace: Duration,
    margin: Duration,
}

impl Stopping {
    /// What the terms allow: TERM, grace and KILL fit into the half of the lease that a renewal leaves untouched.
    pub(crate) fn fitting(terms: &Run, promises: &Promises) -> Result<Self> {
        check_hold_at_least(terms)?;
        let shortest = trusted(terms, promises).into_iter().chain(limit(terms)).min();
        let margin = shortest.map_or(MARGIN_MAX, |shortest| MARGIN_MAX.min(shortest / 10));
        let usual = shortest.map_or(GRACE, |shortest| GRACE.min(shortest / 4));
        let grace = terms.grace.unwrap_or(usual);
        match shortest {
            Some(shortest) if terms.on_lost == OnLost::Term && grace + margin > shortest / 2 => {
                Err(too_long(grace, shortest, (shortest / 2).saturating_sub(margin)))
            }
            _ => Ok(Self { on_lost: terms.on_lost, grace, margin }),
        }
    }

    /// Stopping begins when no more than this is left.
    pub(crate) fn begins_before_end(&self) -> Duration {
        match self.on_lost {
            OnLost::Term => self.grace + self.margin,
            OnLost::Kill => self.margin,
            OnLost::Ignore => Duration::ZERO,
        }
    }

    /// How long after TERM the KILL comes, from now.
    pub(crate) fn kill_after(&self, guard: &Guard) -> Duration {
        match guard.loss() {
            None => self.grace.min(guard.remaining().saturating_sub(self.margin)),
            // Whoever broke the lock chose the moment.
            Some(Loss::Gone) => self.grace,
            // Noticed late, as after a suspension: the next holder may be at work.
            Some(_) => Duration::ZERO,
        }
    }
}

fn check_hold_at_least(terms: &Run) -> Result<()> {
    match (terms.hold_at_least, limit(terms)) {
        (Some(least), Some(most)) if least >= most => {
            let (least, most) = (as_term(least), as_term(most));
            Err(Error::invalid(format!("cannot hold at least {least} what is held no longer than {most}"))
                .remedy("shorten --hold-at-least, or lengthen --max-hold or the --fixed --lease"))
        }
        _ => Ok(()),
    }
}

/// How long a hold outlasts its last sign of life, if a silent one ends at all.
fn trusted(terms: &Run, promises: &Promises) -> Option<Duration> {
    match (promises.expiry, promises.crash) {
        (true, Crash::Within(grace)) if !terms.fixed => Some(terms.lease.min(grace)),
        (true, _) => Some(terms.lease),
        // Whatever its lease, a claim lives as long as its client's session, of which half is certain at any time.
        (false, Crash::Within(session)) => Some(session / 2),
        (false, _) => None,
    }
}

/// The longest a lock of these terms is held, if there is a limit that renewal does not move.
fn limit(terms: &Run) -> Option<Duration> {
    let fixed = terms.fixed.then_some(terms.lease);
    fixed.into_iter().chain(terms.max_hold).min()
}

fn too_long(grace: Duration, shortest: Duration, most: Duration) -> Error {
    let (grace, shortest, most) = (as_term(grace), as_term(shortest), as_term(most));
    Error::invalid(format!("a grace of {grace} does not fit into a lease, crash-grace or --max-hold of {shortest}"))
        .remedy(format!("give a --grace of at most {most}"))
}
