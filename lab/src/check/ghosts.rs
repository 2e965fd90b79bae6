//! Nobody is left in line.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::ClaimId;

use super::{Cycle, Span, cycles};
use crate::{Event, Look, What};

/// How soon claims must be gone.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// After their release was answered.
    pub released: Duration,
    /// After somebody gave up, or was refused or does not know; times of trouble not counted.
    pub given_up: Duration,
}

/// Nobody is seen in line for whom all has been over for long: released, given up, or refused. Who was killed is left to the store.
///
/// # Errors
/// With the first who is.
pub fn ghosts(looks: &[Look], events: &[Event], troubles: &[Span], within: Gone) -> Result<()> {
    let cycles = cycles(events);
    let mut known: HashMap<ClaimId, u64> = HashMap::new();
    for look in looks {
        for claim in &look.claims {
            let Some(own) = cycles.get(&claim.hand) else { continue };
            // It is of the last that was begun when it was first seen, or of one before.
            let seen = *known.entry(claim.id).or_insert(look.done);
            let mut own = own.iter().rev().filter(|cycle| cycle.name == look.name && cycle.asked <= seen).peekable();
            let last = own.peek().copied();
            let last =
                last.with_context(|| format!("hand {} is in line {}, and has not asked", claim.hand, look.name))?;
            let may_be = |cycle: &Cycle| may_be_seen(cycle, look, troubles, within);
            ensure!(own.any(may_be), "{claim:?} was still in line {} at {}, after {last:?}", look.name, look.begun);
        }
    }
    Ok(())
}

fn may_be_seen(cycle: &Cycle, look: &Look, troubles: &[Span], within: Gone) -> bool {
    let Some((over, how)) = cycle.over.filter(|(over, _)| *over < look.begun) else { return true };
    let time = look.begun - over;
    // Who waits through trouble may give a claim up and make another; only the last of them was released.
    let is_the_only = common((cycle.asked, cycle.granted.unwrap_or(over)), troubles) == 0;
    match how {
        What::Killed => true,
        What::Released if is_the_only => Duration::from_nanos(time) <= within.released,
        _ => Duration::from_nanos(time - common((over, look.begun), troubles).min(time)) <= within.given_up,
    }
}

fn common(span: Span, troubles: &[Span]) -> u64 {
    troubles.iter().map(|trouble| trouble.1.min(span.1).saturating_sub(trouble.0.max(span.0))).sum()
}

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;
    use crate::Claimed;

    fn look(begun: u64, claim: u8) -> Look {
        let claim = Claimed { id: ClaimId::from_bytes([claim; 16]), hand: 7, holds: false };
        Look { begun, done: begun + 2, name: 0, claims: vec![claim] }
    }

    fn told(end: &str, looks: &[Look], troubles: &[Span]) -> Result<()> {
        let told = events(&["1 7 0 asked", "3 7 0 granted 5 1 1", "8 7 0 releasing", end, "50 7 0 asked"]);
        let told = if end.ends_with("gave-up") { [&told[..1], &told[3..]].concat() } else { told };
        let within = Gone { released: Duration::ZERO, given_up: Duration::from_nanos(20) };
        ghosts(looks, &told, troubles, within)
    }

    #[test]
    fn who_is_there_while_he_asks_or_holds_is_sound() {
        told("10 7 0 released", &[look(2, 1), look(10, 1), look(51, 2), look(900, 2)], &[]).unwrap();
        told("10 7 0 killed", &[look(2, 1), look(900, 1)], &[]).unwrap();
    }

    #[test]
    fn who_has_released_and_is_there_is_caught() {
        assert!(told("10 7 0 released", &[look(2, 1), look(11, 1)], &[]).is_err());
        // Seen only then, it may still be what was released.
        assert!(told("10 7 0 released", &[look(12, 1)], &[]).is_err());
        assert!(told("10 7 0 released", &[look(2, 1), look(60, 1)], &[]).is_err());
    }

    #[test]
    fn who_waited_through_trouble_may_have_given_one_up() {
        told("10 7 0 released", &[look(12, 1)], &[(1, 2)]).unwrap();
        assert!(told("10 7 0 released", &[look(31, 1)], &[(1, 2)]).is_err());
        assert!(told("10 7 0 released", &[look(12, 1)], &[(4, 5)]).is_err());
    }

    #[test]
    fn who_has_given_up_has_a_while_to_be_gone() {
        told("10 7 0 gave-up", &[look(2, 1), look(30, 1)], &[]).unwrap();
        assert!(told("10 7 0 gave-up", &[look(2, 1), look(31, 1)], &[]).is_err());
        told("10 7 0 gave-up", &[look(2, 1), look(45, 1)], &[(5, 30)]).unwrap();
    }

    #[test]
    fn who_gave_up_before_he_released_may_be_there_for_it() {
        let told = ["1 7 0 asked", "2 7 0 gave-up", "3 7 0 asked", "4 7 0 granted 5 1 1", "5 7 0 released"];
        let within = Gone { released: Duration::ZERO, given_up: Duration::from_nanos(20) };
        ghosts(&[look(7, 1)], &events(&told), &[], within).unwrap();
        assert!(ghosts(&[look(7, 1), look(30, 1)], &events(&told), &[], within).is_err());
        assert!(ghosts(&[look(7, 1)], &events(&told[2..]), &[], within).is_err());
    }

    #[test]
    fn who_has_never_asked_is_caught() {
        assert!(
            ghosts(
                &[Look { name: 1, ..look(2, 1) }],
                &events(&["1 7 0 asked"]),
                &[],
                Gone { released: Duration::ZERO, given_up: Duration::ZERO }
            )
            .is_err()
        );
    }
}
