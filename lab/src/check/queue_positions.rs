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
