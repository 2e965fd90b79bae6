//! The end of the sequence numbers of a lock's node.
//!
//! A server numbers the children of a node with a counter of 31 bits. At its end, a server repeats
//! the last number for clients that create one child at a time, and gives negative numbers to other
//! clients. Then the numbers do not order the claims: two clients may each list themselves first.
//! Three rules prevent this.
//!
//! - A claim with one of the last 2^20 numbers ([`EXHAUSTED_FROM`]) withdraws. It is never granted.
//! - Children with equal or negative numbers are damage: a client that lists them refuses the claim
//!   ([`out_of_order`]).
//! - When half of all numbers are used ([`WARNED_FROM`]), the client logs a warning for each claim.
//!
//! # A new generation
//!
//! In Curator's layout a lock can continue: a client removes the lock's node, and the next claim
//! creates it again, with a counter that begins at zero. A generation of a lock is one life of its
//! node. This does not change the format. Servers also remove every empty container node. Curator's
//! clients and all releases of leasehold create a missing node again. No two clients hold in
//! different generations:
//!
//! 1. A claim is granted only by a listing that shows its own child, with a number below
//!    [`EXHAUSTED_FROM`], among the first.
//! 2. A server removes a node only if it has no children. Check and removal are one transaction,
//!    ordered with all creates. So claims of two generations never exist at the same time, in any
//!    order of requests.
//! 3. A holder's child disappears when the holder leaves, when the hold is broken, or when its
//!    session ends. The validity of a hold ends before its session can end (`liveness.rs`). So when
//!    the node is removed, no hold of that generation is valid. By the same rule a lock passes from
//!    one claim to the next within one generation.
//! 4. A create that reaches the servers after the removal fails without a parent, or creates a
//!    child in the next generation with a number of that generation. Steps 1 to 3 hold for that
//!    child.
//! 5. A downgrade that reaches the servers late creates nothing: it removes the writer's child in
//!    the same transaction, and that child does not exist.
//! 6. A removal that reaches the servers late may remove a later generation. By step 2 that
//!    generation is empty too.
//! 7. Tokens are numbers of transactions, not of children. They increase over generations.
//!
//! Progress: a claim with one of the last numbers withdraws, and its client creates no child of
//! this node until the node is gone. Claims with lower numbers are granted in their order and
//! leave. Finally the node is empty, and the client that watches its children removes it. A client
//! that does not wait is refused while claims with lower numbers exist.
//!
//! A client of Curator or of an older release of leasehold does not follow the first rule. It may
//! hold with one of the last numbers. Its child keeps the node from being removed, so by step 2
//! this client cannot enter a claim. It reports the store as unavailable, with a hint.
//!
//! A kazoo client creates a lock's node only once. So in kazoo's layout no generation follows, and
//! claims are refused as damaged. The same is true for a node with data or an ACL that the next
//! claim would not restore.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use zookeeper_client::Stat;

use leasehold_core::Error;
use leasehold_core::internal::BootInstant;

/// A claim with this number or a larger one is not granted.
///
/// A million numbers remain for requests under way and for clients that do not withdraw.
pub(super) const EXHAUSTED_FROM: i64 = (1 << 31) - (1 << 20);
/// A claim with this number or a larger one causes a warning.
const WARNED_FROM: i64 = 1 << 30;
/// The time between two warnings of one client.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Whether a claim with this number must withdraw.
pub(super) fn is_exhausted(sequence: i64) -> bool {
    !(0..EXHAUSTED_FROM).contains(&sequence)
}

/// Whether a node has given half of all numbers or more.
///
/// A server reports twice its counter minus the count of the children, in 32 bits. After half of
/// the numbers this value is negative.
pub(super) fn is_exhausted_node(stat: &Stat) -> bool {
    stat.cversion < 0
}

const HELP: &str = "stop all clients of this lock, delete its node, and start them again";

/// The error of a claim on an exhausted node that no client may replace.
#[cold]
pub(super) fn exhausted(path: &str) -> Error {
    Error::damaged(format!(
        "the node {path} has no sequence numbers left for claims"
    ))
    .help(HELP)
}

/// The error of a claim on an exhausted node that other clients still use.
#[cold]
pub(super) fn used_by_others(path: &str) -> Error {
    let what = format!(
        "the node {path} has no sequence numbers left, and clients of another library or of an \
         older release still use it"
    );
    Error::unavailable(what).help(HELP)
}

/// The error of claims whose numbers do not order them.
#[cold]
pub(super) fn out_of_order() -> Error {
    Error::damaged(
        "the lock's node has no sequence numbers left, and the numbers of its claims do not \
         order them",
    )
    .help(HELP)
}

/// The lock nodes whose numbers are exhausted, as far as this client knows.
#[derive(Debug, Default)]
pub(super) struct ExhaustedNodes {
    paths: Mutex<BTreeSet<String>>,
    warned: Mutex<Option<BootInstant>>,
}

impl ExhaustedNodes {
    /// Records that a node must be removed before the next claim.
    pub(super) fn add(&self, path: &str) {
        self.paths.lock().insert(path.to_owned());
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.paths.lock().contains(path)
    }

    /// Records that a node has been removed.
    pub(super) fn remove(&self, path: &str) {
        self.paths.lock().remove(path);
    }

    /// Logs a warning if a node has given many numbers.
    pub(super) fn warn(&self, path: &str, sequence: i64) {
        if sequence < WARNED_FROM || !self.is_warning_due(BootInstant::now()) {
            return;
        }

        tracing::warn!(
            node = path,
            number = sequence,
            last = EXHAUSTED_FROM - 1,
            "the lock's node has used more than half of its sequence numbers"
        );
    }

    /// Whether enough time has passed since the last warning. If so, the next pause begins.
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
    fn negative_and_last_numbers_are_exhausted() {
        let last_good = i64::from(i32::MAX) - (1 << 20);
        assert!(!is_exhausted(0) && !is_exhausted(last_good));
        for number in [last_good + 1, i64::from(i32::MAX), -1] {
            assert!(is_exhausted(number));
        }
    }

    #[test]
    fn warning_is_logged_after_half_of_all_numbers_and_once_per_pause() {
        let is_warned = |sequence| {
            let nodes = ExhaustedNodes::default();
            nodes.warn("/leasehold/a", sequence);
            nodes.warned.lock().is_some()
        };
        assert!(!is_warned(0) && !is_warned(WARNED_FROM - 1));
        assert!(is_warned(WARNED_FROM) && is_warned(EXHAUSTED_FROM));

        let nodes = ExhaustedNodes::default();
        let now = BootInstant::now();
        assert!(nodes.is_warning_due(now));
        assert!(!nodes.is_warning_due(now));
        assert!(nodes.is_warning_due(now.saturating_add(WARNING_PAUSE)));
    }
}
