//! The children of a lock's node in order: the holders, the waiters, and the nodes to watch.

use std::cmp::Reverse;

use super::generation;
use super::layout::{Dialect, Member};
use leasehold_core::Result;
use leasehold_core::store::{Share, admitted, check_same_kind, units};

/// The claims of one lock.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) members: Vec<Member>,
    /// The number of members at the front that hold.
    pub(super) granted: usize,
}

/// A claim's position in the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueuePosition {
    Held,
    /// The claim waits behind `ahead` others. It cannot be granted before one of the `watched`
    /// nodes has gone.
    Queued {
        ahead: u32,
        watched: Vec<String>,
    },
}

impl Queue {
    /// Parses and orders the children.
    ///
    /// # Errors
    /// [`is_mismatch`](leasehold_core::Error::is_mismatch) if a child is not of this dialect,
    /// [`is_damaged`](leasehold_core::Error::is_damaged) if the numbers do not order the children.
    pub(super) fn read(children: &[String], dialect: Dialect) -> Result<Self> {
        let members = children.iter().map(|child| dialect.member(child));
        members.collect::<Result<_>>().and_then(Self::checked)
    }

    /// Parses the children for an inspection: it skips those of another dialect, and does not
    /// check the numbers.
    pub(super) fn read_known(children: &[String], dialect: Dialect) -> Self {
        let members = children.iter().filter_map(|child| dialect.read(child));
        Self::ordered(members.collect())
    }

    /// # Errors
    /// [`is_damaged`](leasehold_core::Error::is_damaged) if two claims have one number, or one has a
    /// negative number. Then two clients may disagree on which claim is first.
    fn checked(members: Vec<Member>) -> Result<Self> {
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

    /// Returns the position of a node; `None` if it is not in the queue.
    ///
    /// The first claim decides the kind of the queue. A claim of another kind behind it is about to
    /// be refused, and its node to leave. Until then, nothing behind it is granted, because its
    /// client may still find itself to be the first.
    ///
    /// # Errors
    /// [`is_mismatch`](leasehold_core::Error::is_mismatch) if the first claim has another kind of share,
    /// [`is_damaged`](leasehold_core::Error::is_damaged) if the node has one of the last numbers that a
    /// server can give.
    pub(super) fn position(&self, node: &str) -> Result<Option<QueuePosition>> {
        let Some(at) = self.members.iter().position(|member| member.node == node) else {
            return Ok(None);
        };
        let ahead = &self.members[..at];
        let own = &self.members[at];
        if generation::is_exhausted(own.sequence) {
            return Err(generation::out_of_order());
        }
        if let Some(first) = ahead.first() {
            check_same_kind(own.share, first.share)?;
        }
        let of_another_kind = ahead
            .iter()
            .rfind(|other| check_same_kind(own.share, other.share).is_err());
        if let Some(other) = of_another_kind {
            return Ok(Some(QueuePosition::Queued {
                ahead: u32::try_from(at).unwrap_or(u32::MAX),
                watched: vec![other.node.clone()],
            }));
        }

        if at < self.granted {
            return Ok(Some(QueuePosition::Held));
        }
        Ok(Some(QueuePosition::Queued {
            ahead: u32::try_from(at).unwrap_or(u32::MAX),
            watched: watched(ahead, own.share),
        }))
    }
}

/// Returns the smallest set of nodes ahead that leaves no room for the claim.
///
/// A claim is granted only if those ahead of it, which are never overtaken, leave room for it:
/// their weights and its own do not exceed the capacity. The weights of the returned nodes alone
/// exceed what may stay beside the claim. So while all of them exist, whatever else leaves, the
/// claim cannot be granted, and no event of another node is missed. A downgrade replaces a node, so
/// its watch fires too. A mutex watches the node before it, a reader the writer before it, one slot
/// of n the n nodes before it. Among equal nodes it chooses the nearest ones, because they leave
/// last.
fn watched(ahead: &[Member], own: Share) -> Vec<String> {
    let (weight, capacity) = units(own);
    let beside = u64::from(capacity - weight);
    let mut by_weight: Vec<&Member> = ahead.iter().rev().collect();
    by_weight.sort_by_key(|member| Reverse(units(member.share).0));

    let mut taken = 0;
    let mut watched = Vec::new();
    for member in by_weight {
        if taken > beside {
            break;
        }
        taken += u64::from(units(member.share).0);
        watched.push(member.node.clone());
    }
    watched
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;

    fn queue(marks: &[&str]) -> Queue {
        let nodes: Vec<String> = marks
            .iter()
            .enumerate()
            .map(|(at, share_mark)| format!("_c_{share_mark}{at:010}"))
            .collect();
        Queue::read(&nodes, Dialect::Curator).expect("one dialect")
    }

    fn watched_by(marks: &[&str], at: usize) -> Vec<usize> {
        let queue = queue(marks);
        let Some(QueuePosition::Queued { watched, .. }) =
            queue.position(&queue.members[at].node).expect("one kind")
        else {
            panic!("it waits")
        };
        watched
            .iter()
            .map(|node| {
                queue
                    .members
                    .iter()
                    .position(|member| member.node == *node)
                    .expect("it is there")
            })
            .collect()
    }

    /// Shows G-31.
    #[test]
    fn waiter_watches_the_fewest_nodes_that_must_go() {
        let lock = "-lock-";
        let reader = "-__READ__";
        let writer = "-__WRIT__";
        let slot = "-slots-1-of-2-";
        assert_eq!(watched_by(&[lock, lock, lock], 2), [1]);
        assert_eq!(watched_by(&[writer, reader, reader, reader], 3), [0]);
        assert_eq!(watched_by(&[reader, reader, writer], 2), [1]);
        assert_eq!(watched_by(&[slot, slot, slot, slot], 3), [2, 1]);

        let slots = ["-slots-1-of-3-", "-slots-2-of-3-", "-slots-2-of-3-"];
        assert_eq!(watched_by(&slots, 2), [1]);
        let one = "-slots-1-of-4-";
        assert_eq!(watched_by(&[one, one, one, "-slots-2-of-4-"], 3), [2, 1, 0]);
    }

    #[test]
    fn mixed_lock_kinds_in_one_queue_are_refused() {
        let queue = queue(&["-slots-1-of-2-", "-lock-"]);
        let position = |at: usize| queue.position(&queue.members[at].node);
        assert_eq!(position(0).expect("first"), Some(QueuePosition::Held));
        assert!(position(1).expect_err("mixed").is_mismatch());
        assert_eq!(queue.position("gone").expect("one kind"), None);
    }

    /// A claim of another kind has a node until its client has read its refusal.
    #[test]
    fn claim_about_to_be_refused_refuses_no_claim_behind_it() {
        let slot = "-slots-1-of-3-";
        let queue = queue(&[slot, "-lock-", slot]);
        let position = queue.position(&queue.members[2].node).expect("one kind");
        let waits = QueuePosition::Queued {
            ahead: 2,
            watched: vec![queue.members[1].node.clone()],
        };
        assert_eq!(position, Some(waits));
    }

    fn read(numbers: &[&str]) -> Result<Queue> {
        let nodes: Vec<String> = numbers
            .iter()
            .enumerate()
            .map(|(at, number)| format!("_c_{at}-lock-{number}"))
            .collect();
        Queue::read(&nodes, Dialect::Curator)
    }

    /// Shows G-01.
    #[test]
    fn claims_with_one_number_are_refused_as_damaged() {
        for numbers in [
            &["0000000007", "0000000007"][..],
            &["2147483647", "2147483647"],
            &["0000000001", "0000000007", "0000000007"],
        ] {
            let error = read(numbers).expect_err("two claims have one number");
            assert!(error.is_damaged());
        }
        read(&["0000000007", "0000000008"]).expect("an order");
    }

    /// Shows G-01.
    #[test]
    fn claims_with_negative_numbers_are_refused_as_damaged() {
        for number in ["-2147483648", "-000000001"] {
            let error = read(&["0000000001", number]).expect_err("it sorts before older ones");
            assert!(error.is_damaged());
        }
    }

    /// Shows G-01.
    #[test]
    fn claim_with_one_of_the_last_numbers_is_never_granted() {
        let position = |number: i64| {
            let queue = read(&[&format!("{number:010}")]).expect("an order");
            queue.position(&queue.members[0].node)
        };
        let last = position(generation::EXHAUSTED_FROM - 1).expect("granted");
        assert_eq!(last, Some(QueuePosition::Held));
        for number in [generation::EXHAUSTED_FROM, i64::from(i32::MAX)] {
            assert!(position(number).expect_err("exhausted").is_damaged());
        }
    }

    proptest! {
        /// After any subset of claims leaves, no claim is granted while every node that it watches
        /// exists, and at least one claim is granted.
        #[test]
        fn every_grant_follows_a_change_of_a_watched_node(
            shares in prop::collection::vec(1u32..4, 1..9),
            gone in prop::collection::vec(any::<bool>(), 9),
        ) {
            let marks: Vec<String> =
                shares.iter().map(|weight| format!("-slots-{weight}-of-4-")).collect();
            let before = queue(&marks.iter().map(String::as_str).collect::<Vec<_>>());
            let members = before.members.iter().zip(&gone);
            let remaining: Vec<String> = members
                .filter(|(_, gone)| !**gone)
                .map(|(member, _)| member.node.clone())
                .collect();

            let after = Queue::read(&remaining, Dialect::Curator).expect("one dialect");
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

    proptest! {
        #[test]
        fn any_children_are_read_or_refused(
            text in altered_text(&[
                "_c_285475da-9152-4c83-822a-67ee2f116a79-lock-0000000007\n\
                 _c_285475da-9152-4c83-822a-67ee2f116a79-__READ__0000000008\n\
                 _c_285475da-9152-4c83-822a-67ee2f116a79-slots-1-of-4-0000000009",
                "285475da91524c83822a67ee2f116a79__lock__0000000007\n\
                 285475da91524c83822a67ee2f116a79__rlock__0000000008\n\
                 285475da91524c83822a67ee2f116a79__slots_1_of_4__0000000009",
                "_c_285475da-9152-4c83-822a-67ee2f116a79-lock--000000007\nlatch-0000000003",
            ]),
        ) {
            let children: Vec<String> = text.lines().map(str::to_owned).collect();
            for dialect in [Dialect::Curator, Dialect::Kazoo] {
                let _queue = Queue::read(&children, dialect);
                let _known = Queue::read_known(&children, dialect);
            }
        }
    }
}
