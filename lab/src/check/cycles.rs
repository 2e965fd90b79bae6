//! From asking to being done, hand by hand.

use std::collections::HashMap;

use crate::{Event, What};

/// One time that somebody asked, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Who.
    pub hand: u32,
    /// For which lock.
    pub name: u16,
    /// From when on.
    pub asked: u64,
    /// When it was granted, if it was.
    pub granted: Option<u64>,
    /// When it was done, and how it ended: released, unsure, gave up, refused or killed.
    pub over: Option<(u64, What)>,
}

impl Cycle {
    /// Whether it neither held nor was done at that time.
    #[must_use]
    pub fn waits_at(&self, at: u64) -> bool {
        self.asked < at
            && self.granted.is_none_or(|granted| granted > at)
            && self.over.is_none_or(|(over, _)| over > at)
    }
}

/// All that each hand did, in order.
#[must_use]
pub fn cycles(events: &[Event]) -> HashMap<u32, Vec<Cycle>> {
    let mut all: HashMap<u32, Vec<Cycle>> = HashMap::new();
    // A hand tells in order, and of its death last.
    for &Event { at, hand, name, what } in events {
        let own = all.entry(hand).or_default();
        let last = own.last_mut().filter(|cycle| cycle.over.is_none());
        match (what, last) {
            (What::Asked, _) => own.push(Cycle { hand, name, asked: at, granted: None, over: None }),
            (What::Granted { .. }, Some(cycle)) => cycle.granted = Some(at),
            (What::GaveUp | What::Refused | What::Released | What::Unsure | What::Killed, Some(cycle)) => {
                cycle.over = Some((at, what));
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;

    #[test]
    fn a_cycle_ends_once() {
        let told = events(&[
            "1 7 0 asked",
            "3 7 0 granted 5 1 1",
            "4 7 0 releasing",
            "5 7 0 released",
            "6 7 1 asked",
            "9 7 0 killed",
        ]);
        let own = &cycles(&told)[&7];
        assert_eq!(own[0], Cycle { hand: 7, name: 0, asked: 1, granted: Some(3), over: Some((5, What::Released)) });
        assert_eq!((own.len(), own[1].over), (2, Some((9, What::Killed))));
        assert!(own[0].waits_at(2) && !own[0].waits_at(3) && !own[0].waits_at(1));
        assert!(own[1].waits_at(7) && !own[1].waits_at(9));
    }
}
