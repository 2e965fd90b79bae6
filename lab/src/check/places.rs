//! Who was seen waiting.

use super::cycles;
use crate::{Event, Look, What};

/// That an onlooker saw somebody waiting, of all who certainly were in line then for what they asked: they had asked before the look and
/// were still waiting after it, had nothing left in line from before, and wait however long it takes.
pub fn seen(looks: &[Look], events: &[Event], waits_for_ever: impl Fn(u32) -> bool) -> Vec<Event> {
    let cycles = cycles(events);
    let mut seen = Vec::new();
    for look in looks {
        for claim in look.claims.iter().filter(|claim| !claim.holds && waits_for_ever(claim.hand)) {
            let own = cycles.get(&claim.hand).map_or(&[][..], Vec::as_slice);
            let Some(at) = own.iter().rposition(|cycle| cycle.asked < look.begun) else { continue };
            let is_clean = at == 0 || matches!(own[at - 1].over, Some((_, What::Released)));
            if is_clean && own[at].name == look.name && own[at].waits_at(look.begun) && own[at].waits_at(look.done) {
                seen.push(Event { at: look.done, hand: claim.hand, name: look.name, what: What::Seen });
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use leasehold::ClaimId;

    use super::super::samples::events;
    use super::*;
    use crate::Claimed;

    fn times(told: &[&str], hand: u32, begun: u64) -> Vec<u64> {
        let claims = vec![Claimed { id: ClaimId::from_bytes([1; 16]), hand, holds: false }];
        let look = Look { begun, done: begun + 2, name: 0, claims };
        seen(&[look], &events(told), |hand| hand == 7).iter().map(|event| event.at).collect()
    }

    #[test]
    fn who_waits_before_and_after_was_seen() {
        let told = ["10 7 0 asked", "20 7 0 granted 5 1 1"];
        assert_eq!(times(&told, 7, 12), [14]);
        assert!(times(&told, 7, 19).is_empty() && times(&told, 7, 9).is_empty());
        assert_eq!(times(&told[..1], 7, 900), [902]);
    }

    #[test]
    fn who_has_asked_anew_may_have_been_seen_as_he_was() {
        let told = ["1 7 0 asked", "2 7 0 gave-up", "10 7 0 asked"];
        assert!(times(&told, 7, 12).is_empty());
        let told = ["1 7 0 asked", "2 7 0 granted 5 1 1", "3 7 0 releasing", "4 7 0 released", "10 7 0 asked"];
        assert_eq!(times(&told, 7, 12), [14]);
        assert!(times(&told, 7, 9).is_empty());
    }

    #[test]
    fn who_may_give_up_is_not_counted() {
        assert!(times(&["10 8 0 asked"], 8, 12).is_empty());
    }
}
