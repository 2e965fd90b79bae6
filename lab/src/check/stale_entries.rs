//! A claim that has ended leaves the queue.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::ClaimId;

use super::waiting::quiet_time;
use super::{Cycle, Span, cycles};
use crate::{Event, EventKind, Observation};

/// How soon claims must be gone.
#[derive(Clone, Copy, Debug)]
pub struct GoneTimes {
    /// After the reply to their release.
    pub released: Duration,
    /// After a timeout, a refusal or a release without a reply. Time during faults is not counted.
    pub given_up: Duration,
    /// How long before a fault a release may still be taken back by it. Such a claim has been given
    /// up: it ends by itself.
    pub taken_back: Duration,
}

/// Checks that no entry is observed long after its claim was released, timed out or was refused.
/// The entries of killed workers are left to the store.
///
/// # Errors
/// The first entry that is.
///
/// Shows S8, L5.
pub fn stale_entries(
    observations: &[Observation],
    events: &[Event],
    disturbed: &[Span],
    within: GoneTimes,
) -> Result<()> {
    let cycles = cycles(events);

    let mut known: HashMap<ClaimId, u64> = HashMap::new();
    for observation in observations {
        for claim in &observation.claims {
            let Some(own) = cycles.get(&claim.thread) else {
                continue;
            };
            // The claim belongs to the last cycle that had begun when it was first observed, or to
            // an earlier one.

            let seen = *known.entry(claim.id).or_insert(observation.done);
            let mut own = own
                .iter()
                .rev()
                .filter(|cycle| cycle.name == observation.name && cycle.requested <= seen)
                .peekable();

            let last = own.peek().copied();
            let last = last.with_context(|| {
                format!(
                    "thread {} is in queue {} without a request",
                    claim.thread, observation.name
                )
            })?;

            let may_be = |cycle: &Cycle| may_be_seen(cycle, observation, disturbed, within);
            ensure!(
                own.any(may_be),
                "{claim:?} was still in queue {} at {}, after {last:?}",
                observation.name,
                observation.begun
            );
        }
    }
    Ok(())
}

fn may_be_seen(
    cycle: &Cycle,
    observation: &Observation,
    disturbed: &[Span],
    within: GoneTimes,
) -> bool {
    let Some((over, how)) = cycle.ended.filter(|(over, _)| *over < observation.begun) else {
        return true;
    };
    let since = (over, observation.begun);
    // A waiter may replace its claim during a fault; only the last claim was released.
    let waited = (cycle.requested, cycle.granted.unwrap_or(over));
    let is_the_only = quiet_time(waited, disturbed) == quiet_time(waited, &[]);
    let taken_back = u64::try_from(within.taken_back.as_nanos()).unwrap_or(u64::MAX);
    let last_moments = (over, over.saturating_add(taken_back));
    let may_be_taken_back = quiet_time(last_moments, disturbed) < within.taken_back;

    match how {
        EventKind::Killed => true,
        EventKind::Released if is_the_only && !may_be_taken_back => {
            quiet_time(since, &[]) <= within.released
        }
        _ => quiet_time(since, disturbed) <= within.given_up,
    }
}
