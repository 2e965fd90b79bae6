//! When and how a command is stopped that is about to lose its lock.

use std::time::Duration;

use leasehold::{CrashDetection, Error, Guarantees, Guard, LossReason, RenewalStatus, Result};

use crate::commands::{OnLost, Run};
use crate::format::whole_unit;

const GRACE: Duration = Duration::from_secs(5);
/// From sending KILL to the last process of the group being gone, on a busy machine.
const MARGIN_MAX: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    pub(crate) on_lost: OnLost,
    pub(crate) grace: Duration,
    margin: Duration,
    validity: Option<Validity>,
}

/// For how long the store keeps a lock that it cannot confirm to its holder, and what says so.
#[derive(Clone, Copy, Debug)]
struct Validity {
    setting: &'static str,
    lasts: Duration,
}

impl Stopping {
    /// What the terms allow: TERM, grace and KILL fit into the half of the lease that a renewal leaves untouched. Unless
    /// the terms say otherwise they fit into its last eighth, so that a shorter silence does not stop the command.
    pub(crate) fn fitting(args: &Run, guarantees: &Guarantees) -> Result<Self> {
        check_hold_at_least(args)?;
        let validity = validity(args, guarantees);
        let shortest = validity
            .map(Validity::certain)
            .into_iter()
            .chain(limit(args))
            .min();
        let margin = shortest.map_or(MARGIN_MAX, |shortest| MARGIN_MAX.min(shortest / 10));
        let usual = shortest.map_or(GRACE, |shortest| GRACE.min(shortest / 10));
        let grace = args.grace.unwrap_or(usual);
        match shortest {
            Some(shortest) if args.on_lost == OnLost::Term && grace + margin > shortest / 2 => Err(
                too_long(grace, shortest, (shortest / 2).saturating_sub(margin)),
            ),
            _ => Ok(Self {
                on_lost: args.on_lost,
                grace,
                margin,
                validity,
            }),
        }
    }

    /// Stopping begins when no more than this is left.
    pub(crate) fn stop_margin(&self) -> Duration {
        match self.on_lost {
            OnLost::Term => self.grace + self.margin,
            OnLost::Kill => self.margin,
            OnLost::Ignore => Duration::ZERO,
        }
    }

    /// Why a lock is about to be lost that the store has not confirmed of late.
    pub(crate) fn cause(&self, guard: &Guard, store: &str) -> String {
        let Some(validity) = self
            .validity
            .filter(|_| guard.renewal() == RenewalStatus::Late)
        else {
            return "its time is about to end".to_owned();
        };

        let remaining = guard.remaining();
        let silence = validity.lasts.saturating_sub(remaining).as_secs_f32();
        let (left, setting, lasts) = (
            remaining.as_secs_f32(),
            validity.setting,
            whole_unit(validity.lasts),
        );
        format!(
            "{store} has not confirmed it for {silence:.1}s and may give it to another in {left:.1}s ({setting}={lasts})"
        )
    }

    /// How long after TERM the KILL comes, from now.
    pub(crate) fn kill_after(&self, guard: &Guard) -> Duration {
        match guard.loss() {
            None => self
                .grace
                .min(guard.remaining().saturating_sub(self.margin)),
            // Whoever broke the lock chose the moment.
            Some(LossReason::Revoked) => self.grace,
            // Noticed late, as after a suspension: the next holder may be at work.
            Some(_) => Duration::ZERO,
        }
    }
}

fn check_hold_at_least(args: &Run) -> Result<()> {
    match (args.hold_at_least, limit(args)) {
        (Some(least), Some(most)) if least >= most => {
            let (least, most) = (whole_unit(least), whole_unit(most));
            Err(Error::invalid(format!(
                "cannot hold at least {least} what is held no longer than {most}"
            ))
            .help("shorten --hold-at-least, or lengthen --max-hold or the --no-renewal --lease"))
        }
        _ => Ok(()),
    }
}

/// How long a hold outlasts its last sign of life, if a silent one ends at all.
fn validity(args: &Run, guarantees: &Guarantees) -> Option<Validity> {
    let lease = Validity {
        setting: "lease",
        lasts: args.lease,
    };
    match (guarantees.lease_expiry, guarantees.crash) {
        (true, CrashDetection::Within(grace)) if !args.no_renewal && grace < args.lease => {
            Some(Validity {
                setting: "crash-grace",
                lasts: grace,
            })
        }
        (true, _) => Some(lease),
        // Whatever its lease, a claim lives as long as its client's session.
        (false, CrashDetection::Within(session)) => Some(Validity {
            setting: Validity::SESSION,
            lasts: session,
        }),
        (false, _) => None,
    }
}

impl Validity {
    const SESSION: &str = "session";

    /// What a renewal that was just confirmed leaves at any time: of a session, whose writes confirm an earlier one, half.
    fn certain(self) -> Duration {
        if self.setting == Self::SESSION {
            self.lasts / 2
        } else {
            self.lasts
        }
    }
}

/// The longest a lock of these terms is held, if there is a limit that renewal does not move.
fn limit(args: &Run) -> Option<Duration> {
    let no_renewal = args.no_renewal.then_some(args.lease);
    no_renewal.into_iter().chain(args.max_hold).min()
}

fn too_long(grace: Duration, shortest: Duration, most: Duration) -> Error {
    let (grace, shortest, most) = (whole_unit(grace), whole_unit(shortest), whole_unit(most));
    Error::invalid(format!(
        "a grace of {grace} does not fit into a lease, crash-grace or --max-hold of {shortest}"
    ))
    .help(format!("give a --grace of at most {most}"))
}
