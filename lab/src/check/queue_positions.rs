//! The waiters that the observer saw.

use super::cycles;
use crate::{Event, EventKind, Observation};

/// Returns an event for each waiter that the observer saw and that was certainly queued for its
/// current request. Such a waiter requested before the inspection and still waited after it, had no
/// entry left from an earlier request, and waits without a limit.
///
/// Shows L3.
pub fn queue_positions(
    observations: &[Observation],
    events: &[Event],
    waits_forever: impl Fn(u32) -> bool,
) -> Vec<Event> {
    let cycles = cycles(events);
    let mut seen = Vec::new();
    for observation in observations {
        for claim in observation
            .claims
            .iter()
            .filter(|claim| !claim.holds && waits_forever(claim.thread))
        {
            let own = cycles.get(&claim.thread).map_or(&[][..], Vec::as_slice);
            let Some(at) = own
                .iter()
                .rposition(|cycle| cycle.requested < observation.begun)
            else {
                continue;
            };

            let is_clean = at == 0 || matches!(own[at - 1].ended, Some((_, EventKind::Released)));
            if is_clean
                && own[at].name == observation.name
                && own[at].waits_at(observation.begun)
                && own[at].waits_at(observation.done)
            {
                seen.push(Event {
                    at: observation.done,
                    thread: claim.thread,
                    name: observation.name,
                    kind: EventKind::ObservedWaiting,
                });
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {

    use super::super::samples::events;
    use super::*;
    use crate::ObservedClaim;
    use leasehold::store::claim_id_from_bytes;

    fn times(lines: &[&str], thread: u32, begun: u64) -> Vec<u64> {
        let claims = vec![ObservedClaim {
            id: claim_id_from_bytes([1; 16]),
            thread,
            holds: false,
        }];
        let observation = Observation {
            begun,
            done: begun + 2,
            name: 0,
            claims,
        };

        queue_positions(&[observation], &events(lines), |thread| thread == 7)
            .iter()
            .map(|event| event.at)
            .collect()
    }

    #[test]
    fn continuous_waiter_is_observed() {
        let lines = ["10 7 0 requested", "20 7 0 granted 5 1 1"];
        assert_eq!(times(&lines, 7, 12), [14]);
        assert!(times(&lines, 7, 19).is_empty() && times(&lines, 7, 9).is_empty());
        assert_eq!(times(&lines[..1], 7, 900), [902]);
    }

    #[test]
    fn requeued_waiter_is_not_matched_to_earlier_request() {
        let lines = ["1 7 0 requested", "2 7 0 timed-out", "10 7 0 requested"];
        assert!(times(&lines, 7, 12).is_empty());
        let lines = [
            "1 7 0 requested",
            "2 7 0 granted 5 1 1",
            "3 7 0 releasing",
            "4 7 0 released",
            "10 7 0 requested",
        ];
        assert_eq!(times(&lines, 7, 12), [14]);
        assert!(times(&lines, 7, 9).is_empty());
    }

    #[test]
    fn waiter_with_timeout_is_not_counted() {
        assert!(times(&["10 8 0 requested"], 8, 12).is_empty());
    }
}
