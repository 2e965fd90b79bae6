//! What happens when a lock's node has no more numbers to give.
//!
//! A server numbers the children of a node with a counter of 31 bits. At its end, servers give the
//! last number again and again to clients that create one child at a time, and negative numbers to
//! others. Then the numbers do not order the claims: two clients may each list themselves first.
//! Three rules keep them apart.
//!
//! - A claim whose own number is among the last 2^20 ([`WORN_OUT_FROM`]) withdraws. It is never
//!   granted.
//! - Children with equal or negative numbers are damage: a claim that lists them is refused
//!   ([`out_of_order`]).
//! - From half of all numbers on ([`WARNED_FROM`]) a claim that is entered logs a warning.
//!
//! # A new generation
//!
//! In Curator's layout locks go on: a client removes the lock's node, and the next claim makes it
//! again, with a counter that begins at zero. So a generation of a lock is one life of its node.
//! Nothing in the format is new. Servers do the same with every container node that they find
//! empty, and Curator's clients, older releases of leasehold and this one all make a node again
//! that they find missing. No two clients hold in different generations:
//!
//! 1. A claim is granted only by a listing that shows its own child, with a number below
//!    [`WORN_OUT_FROM`], among the first.
//! 2. A server removes a node only if it has no children. Check and removal are one transaction,
//!    ordered with all creates. So there is never a claim of an earlier generation beside a claim
//!    of a later one, in any order of requests.
//! 3. A holder's child goes when the holder leaves, when the hold is broken, or when its session
//!    ends. A holder stops trusting its hold before its session can end (`liveness.rs`). So when the
//!    node is removed, no holder of that generation trusts its hold. This is the rule by which a
//!    lock passes from one claim to the next within one generation.
//! 4. A create that reaches the servers after the removal fails, as there is no parent, or makes a
//!    child in the next generation with a number of that generation. There steps 1 to 3 hold for
//!    it.
//! 5. A downgrade that reaches the servers late makes nothing: it removes the writer's child in the
//!    same transaction, and that child is not there.
//! 6. A removal that reaches the servers late may remove a later generation. By step 2 that one is
//!    empty too.
//! 7. Tokens are numbers of transactions, not of children. They rise over generations.
//!
//! Progress: a claim with one of the last numbers withdraws, and its client creates no child of
//! this node until the node is gone. Claims with lower numbers are granted in their order and
//! leave. So at last the node is empty, and the client that watches its children removes it. A
//! client that tried (not waits) is refused while claims with lower numbers are there.
//!
//! A client that does not follow rule one, Curator's or an older leasehold's, may hold with one of
//! the last numbers. Its child keeps the node, so step 2 keeps this client out: it reports the
//! store as unavailable, with what to do.
//!
//! kazoo's clients do not make a node again that they have seen once. So in kazoo's layout no
//! generation follows: claims are refused as damaged. So they are where the node has data or an ACL
//! that the next claim would not give it again.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use zookeeper_client::Stat;

use crate::Error;
use crate::runtime::clock::BootInstant;

/// A claim with this number or a larger one is not granted. A million numbers are left for requests
/// under way and for clients that do not withdraw.
pub(super) const WORN_OUT_FROM: i64 = (1 << 31) - (1 << 20);
/// A claim with this number or a larger one is worth a warning.
const WARNED_FROM: i64 = 1 << 30;
/// Time between two warnings of one client.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Whether a claim with this number must withdraw.
pub(super) fn is_worn_out(sequence: i64) -> bool {
    !(0..WORN_OUT_FROM).contains(&sequence)
}

/// Whether a node has given half of all numbers or more. Servers show twice their counter less the
/// count of the children, in 32 bits, which is negative then.
pub(super) fn is_worn_out_node(stat: &Stat) -> bool {
    stat.cversion < 0
}

const REMEDY: &str = "stop all clients of this lock, delete its node, and start them again";

/// The error of a claim on a node that has no more numbers, and that no client may replace.
#[cold]
pub(super) fn worn_out(path: &str) -> Error {
    Error::damaged(format!(
        "the node {path} has numbered too many claims, and has no numbers left"
    ))
    .help(REMEDY)
}

/// The error of a claim on a node that has no more numbers, and in which other clients go on.
#[cold]
pub(super) fn used_by_others(path: &str) -> Error {
    let what = format!(
        "the node {path} has no numbers left, and clients of another library or of an older release still use it"
    );
    Error::unavailable(what).help(REMEDY)
}

/// The error of claims whose numbers do not order them.
#[cold]
pub(super) fn out_of_order() -> Error {
    Error::damaged(
        "the lock's node has no numbers left, and the numbers of its claims do not order them",
    )
    .help(REMEDY)
}

/// What a client remembers of nodes whose numbers come to their end.
#[derive(Debug, Default)]
pub(super) struct Wear {
    worn_out: Mutex<BTreeSet<String>>,
    warned: Mutex<Option<BootInstant>>,
}

impl Wear {
    /// Notes that a node must be removed before the next claim.
    pub(super) fn note(&self, path: &str) {
        self.worn_out.lock().insert(path.to_owned());
    }

    pub(super) fn is_noted(&self, path: &str) -> bool {
        self.worn_out.lock().contains(path)
    }

    /// Notes that a node is a new one.
    pub(super) fn forget(&self, path: &str) {
        self.worn_out.lock().remove(path);
    }

    /// Warns of a node that has given many numbers.
    pub(super) fn warn(&self, path: &str, sequence: i64) {
        if sequence < WARNED_FROM || !self.is_warning_due(BootInstant::now()) {
            return;
        }

        tracing::warn!(
            node = path,
            number = sequence,
            last = WORN_OUT_FROM - 1,
            "the lock's node has given more than half of the numbers that it has for claims"
        );
    }

    /// Whether the last warning is old enough. If so, the next one is due after another pause.
    fn is_warning_due(&self, now: BootInstant) -> bool {
        let mut warned = self.warned.lock();
        if warned.is_some_and(|at| now.duration_since(at) < WARNING_PAUSE) {
            return false;
        }
        *warned = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_and_last_numbers_are_worn_out() {
        let last_good = i64::from(i32::MAX) - (1 << 20);
        assert!(!is_worn_out(0) && !is_worn_out(last_good));
        assert!(is_worn_out(last_good + 1) && is_worn_out(i64::from(i32::MAX)) && is_worn_out(-1));
    }

    #[test]
    fn warnings_come_from_half_of_all_numbers_on_and_once_a_pause() {
        let is_warned = |sequence| {
            let wear = Wear::default();
            wear.warn("/leasehold/a", sequence);
            wear.warned.lock().is_some()
        };
        assert!(!is_warned(0) && !is_warned(WARNED_FROM - 1));
        assert!(is_warned(WARNED_FROM) && is_warned(WORN_OUT_FROM));

        let (wear, now) = (Wear::default(), BootInstant::now());
        assert!(wear.is_warning_due(now) && !wear.is_warning_due(now));
        assert!(wear.is_warning_due(now.saturating_add(WARNING_PAUSE)));
    }
}
