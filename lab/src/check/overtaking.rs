//! A claim that is still in the queue is not overtaken, however long it has waited.

use std::collections::HashMap;

use leasehold::ClaimId;

use super::Span;
use crate::{Hold, Observation};

/// A claim that waited all the time, and a later one that was granted meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaking {
    /// The waiting claim.
    pub claim: ClaimId,
    /// The thread of the waiting claim.
    pub thread: u32,
    /// Two inspections in which the claim waited.
    pub seen: Span,
    /// The hold that was requested and granted between them.
    pub by: Hold,
}

/// Finds a claim that waits in two inspections, between which a hold of the whole capacity was
/// requested and granted. One id is one entry in the queue, so the claim had its position all the
/// time. Inspections that are disturbed by a fault do not count.
///
/// [`order`](super::order) judges claims that were granted. This judges also those that never are.
///
/// Shows L3, L4.
#[must_use]
pub fn overtaking(
    observations: &[Observation],
    holds: &[Hold],
    disturbed: &[Span],
) -> Option<Overtaking> {
    let mut waits: HashMap<(u16, ClaimId), Vec<Sighting>> = HashMap::new();
    for observation in observations {
        for claim in observation.claims.iter().filter(|claim| !claim.holds) {
            waits
                .entry((observation.name, claim.id))
                .or_default()
                .push(Sighting {
                    begun: observation.begun,
                    done: observation.done,
                    thread: claim.thread,
                });
        }
    }

    let mut whole: Vec<&Hold> = holds
        .iter()
        .filter(|hold| hold.weight == hold.capacity)
        .collect();
    whole.sort_unstable_by_key(|hold| hold.granted);
    waits.iter().find_map(|((name, claim), sightings)| {
        let pairs = sightings.windows(2).map(|pair| (pair[0], pair[1]));
        let quiet = pairs.filter(|pair| !touches((pair.0.begun, pair.1.done), disturbed));
        quiet.into_iter().find_map(|(first, last)| {
            let by = requested_and_granted_between(&whole, *name, first, last)?;
            Some(Overtaking {
                claim: *claim,
                thread: first.thread,
                seen: (first.done, last.begun),
                by,
            })
        })
    })
}

/// One inspection in which a claim waited.
#[derive(Clone, Copy)]
struct Sighting {
    begun: u64,
    done: u64,
    thread: u32,
}

fn requested_and_granted_between(
    sorted: &[&Hold],
    name: u16,
    first: Sighting,
    last: Sighting,
) -> Option<Hold> {
    let begin = sorted.partition_point(|hold| hold.granted <= first.done);
    let overtook = |hold: &&&Hold| {
        hold.name == name && hold.requested > first.done && hold.thread != first.thread
    };

    let between = sorted[begin..]
        .iter()
        .take_while(|hold| hold.granted < last.begun);
    between.into_iter().find(overtook).map(|hold| **hold)
}

fn touches(span: Span, disturbed: &[Span]) -> bool {
    disturbed
        .iter()
        .any(|(from, to)| *from <= span.1 && span.0 <= *to)
}
