//! The children of a lock's node, in order: who holds, who waits, and whom to watch.

use super::generation;
use super::layout::{Dialect, Member};
use crate::{Result, Share, admitted};

/// The claims in one line.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) members: Vec<Member>,
    /// So many at the front hold.
    pub(super) granted: usize,
}

/// A claim's place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueuePosition {
    Held,
    /// Behind so many, and who must be watched: it cannot be granted before one of these goes.
    Queued {
        ahead: u32,
        watched: Vec<String>,
    },
}

impl Queue {
    /// # Errors Mismatch if a child is not of this dialect, damaged if the numbers do not order the
    /// children.
    pub(super) fn read(children: &[String], dialect: Dialect) -> Result<Self> {
        children
            .iter()
            .map(|child| dialect.member(child))
            .collect::<Result<_>>()
            .and_then(Self::of)
    }

    /// For people: what is not of this dialect is passed over, and numbers are not checked.
    pub(super) fn read_known(children: &[String], dialect: Dialect) -> Self {
        Self::ordered(
            children
                .iter()
                .filter_map(|child| dialect.read(child))
                .collect(),
        )
    }

    /// # Errors Damaged if two claims have one number, or one has a negative number: then two
    /// clients may disagree on who is first.
    fn of(members: Vec<Member>) -> Result<Self> {
        let queue = Self::ordered(members);

        let is_negative = queue
            .members
            .first()
            .is_some_and(|first| first.sequence < 0);
        let is_repeated = queue
            .members
            .windows(2)
            .any(|pair| pair[0].sequence == pair[1].sequence);
        if is_negative || is_repeated {
            return Err(generation::out_of_order());
        }

        Ok(queue)
    }

    fn ordered(mut members: Vec<Member>) -> Self {
        members.sort_by_key(|member| member.sequence);
        let granted = admitted(members.iter().map(|member| member.share));
        Self { members, granted }
    }

    /// Where a node stands; `None` if it is not there.
    ///
    /// # Errors Mismatch if its share is of another kind than one that is ahead of it, damaged if
    /// its number is among the last that a server can give.
    pub(super) fn position(&self, node: &str) -> Result<Option<QueuePosition>> {
        let Some(at) = self.members.iter().position(|member| member.node == node) else {
            return Ok(None);
        };
        let (ahead, own) = (&self.members[..at], &self.members[at]);
        if generation::is_worn_out(own.sequence) {
            return Err(generation::out_of_order());
        }
        ahead
            .iter()
            .try_for_each(|other| own.share.check_same_kind(other.share))?;
        if at < self.granted {
            return Ok(Some(QueuePosition::Held));
        }
        let watched = watched(ahead, own.share);
        Ok(Some(QueuePosition::Queued {
            ahead: u32::try_from(at).unwrap_or(u32::MAX),
            watched,
        }))
    }
}

/// The fewest of those ahead that take so much together that the claim does not fit beside them: when it is granted, at least
/// one of them is gone. For a mutex that is the one before it, for a reader the writer before it, for one slot of n the n
/// before it. Of equals the nearest are taken, as they are the last to go.
fn watched(ahead: &[Member], own: Share) -> Vec<String> {
    let (weight, capacity) = own.units();
    let beside = u64::from(capacity - weight);
    let mut by_weight: Vec<&Member> = ahead.iter().rev().collect();
    by_weight.sort_by_key(|member| std::cmp::Reverse(member.share.units().0));
    let mut taken = 0;
    let mut watched = Vec::new();
    for member in by_weight {
        if taken > beside {
            break;
        }
        taken += u64::from(member.share.units().0);
        watched.push(member.node.clone());
    }
    watched
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(marks: &[&str]) -> Queue {
        let nodes: Vec<String> = marks
            .iter()
            .enumerate()
            .map(|(at, share_mark)| format!("_c_{share_mark}{at:010}"))
            .collect();
        Queue::read(&nodes, Dialect::Curator).expect("all are ours")
    }

    fn watched_by(marks: &[&str], at: usize) -> Vec<usize> {
        let queue = queue(marks);
        let Some(QueuePosition::Queued { watched, .. }) =
            queue.position(&queue.members[at].node).expect("one kind")
        else {
            panic!("it waits")
        };
        let index = |node: &String| {
            queue
                .members
                .iter()
                .position(|member| member.node == *node)
                .expect("it is there")
        };
        watched.iter().map(index).collect()
    }

    #[test]
    fn waiter_watches_the_fewest_nodes_that_must_go() {
        let (lock, read, write, slot) = ("-lock-", "-__READ__", "-__WRIT__", "-slots-1-of-2-");
        assert_eq!(watched_by(&[lock, lock, lock], 2), [1]);
        assert_eq!(watched_by(&[write, read, read, read], 3), [0]);
        assert_eq!(watched_by(&[read, read, write], 2), [1]);
        assert_eq!(watched_by(&[slot, slot, slot, slot], 3), [2, 1]);
        assert_eq!(
            watched_by(&["-slots-1-of-3-", "-slots-2-of-3-", "-slots-2-of-3-"], 2),
            [1]
        );
    }

    #[test]
    fn mixed_lock_kinds_in_one_queue_are_refused() {
        let queue = queue(&["-slots-1-of-2-", "-lock-"]);
        assert!(
            queue
                .position(&queue.members[1].node)
                .expect_err("mixed")
                .is_mismatch()
        );
        assert_eq!(
            queue.position(&queue.members[0].node).expect("first"),
            Some(QueuePosition::Held)
        );
        assert_eq!(queue.position("gone").expect("asked"), None);
    }

    fn read(numbers: &[&str]) -> Result<Queue> {
        let node = |(at, number): (usize, &&str)| format!("_c_{at}-lock-{number}");
        let nodes: Vec<String> = numbers.iter().enumerate().map(node).collect();
        Queue::read(&nodes, Dialect::Curator)
    }

    #[test]
    fn claims_with_one_number_are_refused_as_damaged() {
        for numbers in [["0000000007", "0000000007"], ["2147483647", "2147483647"]] {
            assert!(
                read(&numbers)
                    .expect_err("both would be first")
                    .is_damaged()
            );
        }
        assert!(
            read(&["0000000001", "0000000007", "0000000007"])
                .expect_err("no order behind the first")
                .is_damaged()
        );
        read(&["0000000007", "0000000008"]).expect("an order");
    }

    #[test]
    fn claims_with_negative_numbers_are_refused_as_damaged() {
        for number in ["-2147483648", "-000000001"] {
            assert!(
                read(&["0000000001", number])
                    .expect_err("it sorts before older ones")
                    .is_damaged()
            );
        }
    }

    #[test]
    fn claim_with_one_of_the_last_numbers_is_never_granted() {
        let position = |number: i64| {
            let queue = read(&[&format!("{number:010}")]).expect("an order");
            queue.position(&queue.members[0].node)
        };
        assert_eq!(
            position(generation::WORN_OUT_FROM - 1).expect("granted"),
            Some(QueuePosition::Held)
        );
        for number in [generation::WORN_OUT_FROM, i64::from(i32::MAX)] {
            assert!(position(number).expect_err("worn out").is_damaged());
        }
    }

    proptest! {
        /// Whoever is left when some have gone: nobody is granted whose watched ones are all there, and somebody always is.
        #[test]
        fn every_grant_follows_a_change_of_a_watched_node(
            shares in prop::collection::vec(1u32..4, 1..9), gone in prop::collection::vec(any::<bool>(), 9),
        ) {
            let marks: Vec<String> = shares.iter().map(|weight| format!("-slots-{weight}-of-4-")).collect();
            let before = queue(&marks.iter().map(String::as_str).collect::<Vec<_>>());
            let remaining: Vec<String> =
                before.members.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(member, _)| member.node.clone()).collect();
            let after = Queue::read(&remaining, Dialect::Curator).expect("all are ours");
            prop_assert!(remaining.is_empty() || after.granted > 0);
            for node in &remaining {
                let was = before.position(node).expect("one kind").expect("it was there");
                let is = after.position(node).expect("one kind").expect("it is there");
                if let (QueuePosition::Queued { watched, .. }, QueuePosition::Held) = (was, is) {
                    prop_assert!(watched.iter().any(|watched| !remaining.contains(watched)));
                }
            }
        }
    }
}
