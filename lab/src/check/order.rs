//! First come, first served.

use super::Fault;
use crate::Hold;

/// Nobody who asked after another had been seen waiting was granted before that other, if they exclude each other.
///
/// The order of grants is that of their tokens. It says nothing of those whom nobody saw waiting.
///
/// Finds the one who waited and the one who overtook.
#[must_use]
pub fn order(holds: &[Hold]) -> Option<Fault> {
    let seen = holds.iter().filter_map(|hold| hold.seen.map(|seen| (seen, hold)));
    for (seen, waiter) in seen {
        let overtook = |other: &&Hold| other.asked > seen && other.token < waiter.token && other.excludes(waiter);
        if let Some(second) = holds.iter().find(overtook) {
            return Some(Fault { rule: "overtaken by one that came later", first: *waiter, second: *second });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::samples::{mutex, reader, writer};
    use super::*;

    fn waited(hold: Hold, asked: u64, seen: u64) -> Hold {
        Hold { asked, seen: Some(seen), ..hold }
    }

    #[test]
    fn in_turn_is_sound() {
        assert_eq!(
            order(&[mutex(1, 10, 20), waited(mutex(2, 20, 30), 11, 12), waited(mutex(3, 31, 40), 13, 14)]),
            None
        );
    }

    #[test]
    fn an_overtaker_is_caught() {
        let broken = order(&[waited(mutex(2, 20, 30), 13, 14), waited(mutex(3, 31, 40), 11, 12)]).unwrap();
        assert_eq!((broken.first.token, broken.second.token), (3, 2));
    }

    #[test]
    fn a_reader_may_not_overtake_a_waiting_writer_but_another_reader() {
        let late = Hold { asked: 14, ..reader(2, 15, 18) };
        assert!(order(&[reader(1, 10, 20), late, waited(writer(3, 21, 30), 12, 13)]).is_some());
        assert_eq!(order(&[late, waited(reader(3, 21, 30), 12, 13)]), None);
    }
}
