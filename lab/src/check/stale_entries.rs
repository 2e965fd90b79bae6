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

    match how {
        EventKind::Killed => true,
        EventKind::Released if is_the_only => quiet_time(since, &[]) <= within.released,
        _ => quiet_time(since, disturbed) <= within.given_up,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;
    use crate::ObservedClaim;
    use leasehold::store::claim_id_from_bytes;

    fn observation(begun: u64, claim: u8) -> Observation {
        let claim = ObservedClaim {
            id: claim_id_from_bytes([claim; 16]),
            thread: 7,
            holds: false,
        };
        Observation {
            begun,
            done: begun + 2,
            name: 0,
            claims: vec![claim],
        }
    }

    fn recorded(end: &str, observations: &[Observation], disturbed: &[Span]) -> Result<()> {
        let events = events(&[
            "1 7 0 requested",
            "3 7 0 granted 5 1 1",
            "8 7 0 releasing",
            end,
            "50 7 0 requested",
        ]);
        let events = if end.ends_with("gave-up") {
            [&events[..1], &events[3..]].concat()
        } else {
            events
        };
        let within = GoneTimes {
            released: Duration::ZERO,
            given_up: Duration::from_nanos(20),
        };

        stale_entries(observations, &events, disturbed, within)
    }

    #[test]
    fn entry_of_active_claim_passes() {
        recorded(
            "10 7 0 released",
            &[
                observation(2, 1),
                observation(10, 1),
                observation(51, 2),
                observation(900, 2),
            ],
            &[],
        )
        .unwrap();

        recorded(
            "10 7 0 killed",
            &[observation(2, 1), observation(900, 1)],
            &[],
        )
        .unwrap();
    }

    #[test]
    fn entry_after_release_is_detected() {
        assert!(
            recorded(
                "10 7 0 released",
                &[observation(2, 1), observation(11, 1)],
                &[]
            )
            .is_err()
        );
        // An entry that is first observed now may still be the released claim.
        assert!(recorded("10 7 0 released", &[observation(12, 1)], &[]).is_err());

        assert!(
            recorded(
                "10 7 0 released",
                &[observation(2, 1), observation(60, 1)],
                &[]
            )
            .is_err()
        );
    }

    #[test]
    fn entry_of_claim_replaced_during_fault_passes() {
        recorded("10 7 0 released", &[observation(12, 1)], &[(1, 2)]).unwrap();
        assert!(recorded("10 7 0 released", &[observation(31, 1)], &[(1, 2)]).is_err());
        assert!(recorded("10 7 0 released", &[observation(12, 1)], &[(4, 5)]).is_err());
    }

    #[test]
    fn entry_after_timeout_may_remain_briefly() {
        recorded(
            "10 7 0 timed-out",
            &[observation(2, 1), observation(30, 1)],
            &[],
        )
        .unwrap();
        assert!(
            recorded(
                "10 7 0 timed-out",
                &[observation(2, 1), observation(31, 1)],
                &[]
            )
            .is_err()
        );

        recorded(
            "10 7 0 timed-out",
            &[observation(2, 1), observation(45, 1)],
            &[(5, 30)],
        )
        .unwrap();
    }

    #[test]
    fn entry_after_timeout_and_release_may_remain_briefly() {
        let lines = [
            "1 7 0 requested",
            "2 7 0 timed-out",
            "3 7 0 requested",
            "4 7 0 granted 5 1 1",
            "5 7 0 released",
        ];
        let within = GoneTimes {
            released: Duration::ZERO,
            given_up: Duration::from_nanos(20),
        };
        stale_entries(&[observation(7, 1)], &events(&lines), &[], within).unwrap();
        assert!(
            stale_entries(
                &[observation(7, 1), observation(30, 1)],
                &events(&lines),
                &[],
                within
            )
            .is_err()
        );

        assert!(stale_entries(&[observation(7, 1)], &events(&lines[2..]), &[], within).is_err());
    }

    #[test]
    fn entry_without_request_is_detected() {
        assert!(
            stale_entries(
                &[Observation {
                    name: 1,
                    ..observation(2, 1)
                }],
                &events(&["1 7 0 requested"]),
                &[],
                GoneTimes {
                    released: Duration::ZERO,
                    given_up: Duration::ZERO
                }
            )
            .is_err()
        );
    }
}
