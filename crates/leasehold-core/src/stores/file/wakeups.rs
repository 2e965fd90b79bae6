//! The claims to wake after a change, and how a task of this process waits for its wake-up.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::process::ProcessId;
use crate::{ClaimId, Share, admitted};

/// The claims of this process that a task waits for.
#[derive(Debug, Default)]
pub(super) struct Wakers(Mutex<HashMap<ClaimId, Arc<Notify>>>);

impl Wakers {
    pub(super) fn wake(&self, id: ClaimId) {
        if let Some(notify) = self.0.lock().get(&id) {
            notify.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        for notify in self.0.lock().values() {
            notify.notify_waiters();
        }
    }

    pub(super) fn register(&self, id: ClaimId) -> Waker<'_> {
        let notify = Arc::clone(self.0.lock().entry(id).or_default());
        Waker {
            wakers: self,
            id,
            notify,
        }
    }
}

/// Receives the wake-ups of one claim as long as it lives.
pub(super) struct Waker<'a> {
    wakers: &'a Wakers,
    id: ClaimId,
    notify: Arc<Notify>,
}

impl Waker<'_> {
    /// Resolves at the next wake-up after this call.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waker<'_> {
    fn drop(&mut self) {
        let mut wakers = self.wakers.0.lock();
        // If this is the last waker, two references are left: in the table and in this waker.
        if Arc::strong_count(&self.notify) == 2 {
            wakers.remove(&self.id);
        }
    }
}

/// The fields of a claim in the queue on which wake-ups depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) id: ClaimId,
    pub(super) process: ProcessId,
    pub(super) share: Share,
    pub(super) held: bool,
}

/// The processes that the waiter at a position must watch.
///
/// A waiter watches the process of the waiter before it. The first waiter watches all holders,
/// because any of them may make room for it.
///
/// That is enough, because a death travels along the queue. The waiter that notices it removes the
/// entries of the dead process and then watches the process that is now before it, which may be
/// dead as well. So even if a holder dies together with the first waiters, the first waiter that
/// lives finds one after the other, becomes the first of the queue, and finds the holder. N waiters
/// watch about N processes, where N times N would use up the descriptors.
pub(super) fn watches(positions: &[Position], at: usize) -> Vec<ProcessId> {
    let ahead = &positions[..at];
    if let Some(waiter) = ahead.iter().rev().find(|position| !position.held) {
        return vec![waiter.process];
    }

    let mut holders: Vec<ProcessId> = ahead.iter().map(|position| position.process).collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// The claims to wake after a change.
///
/// Every grantable waiter is included even if its position did not change, so that the next change
/// repairs a wake-up that was lost when its sender was killed.
///
/// Without a change, no claim is woken. Two waiters behind an external flock would otherwise wake
/// each other, and themselves, for as long as they wait.
pub(super) fn to_wake(before: &[Position], after: &[Position]) -> Vec<(ProcessId, ClaimId)> {
    if before == after {
        return Vec::new();
    }
    let granted = admitted(after.iter().map(|position| position.share));

    // Claims keep their order, so one pass over both queues finds every claim.
    let mut earlier = before.iter().enumerate();
    let mut watched_before = |id| {
        earlier
            .find(|(_, position)| position.id == id)
            .map(|(at, _)| watches(before, at))
    };

    let mut concerned = Vec::new();
    for (at, position) in after.iter().enumerate() {
        let before = watched_before(position.id);
        if !position.held && (at < granted || before != Some(watches(after, at))) {
            concerned.push((position.process, position.id));
        }
    }
    concerned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::claim_id_from_bytes;

    fn position(number: u8, share: Share, held: bool) -> Position {
        Position {
            id: claim_id_from_bytes([number; 16]),
            process: ProcessId::from_bytes([number; 16]),
            share,
            held,
        }
    }

    fn woken(before: &[Position], after: &[Position]) -> Vec<u8> {
        to_wake(before, after)
            .into_iter()
            .map(|(process, _)| process.to_bytes()[0])
            .collect()
    }

    fn mutex_queue() -> Vec<Position> {
        (1..=5)
            .map(|number| position(number, Share::MUTEX, number == 1))
            .collect()
    }

    #[test]
    fn release_wakes_only_the_next_waiter() {
        let queue = mutex_queue();
        assert_eq!(woken(&queue, &queue[1..]), [2]);

        let mut granted = queue[1..].to_vec();
        granted[0].held = true;
        assert_eq!(
            woken(&queue[1..], &granted),
            [0; 0],
            "3 watched 2 and still does"
        );
    }

    #[test]
    fn departed_waiter_is_no_longer_watched() {
        let queue = mutex_queue();
        let without = [queue[0], queue[1], queue[3], queue[4]];
        assert_eq!(woken(&queue, &without), [4]);
    }

    /// The waiter of a large share watches each holder. A second one may be granted ahead of it.
    #[test]
    fn waiter_that_must_watch_one_more_process_is_woken() {
        let slots = |permits| Share::slots(permits, 3).expect("at most 3 permits");
        let before = [
            position(1, slots(1), true),
            position(2, slots(1), false),
            position(3, slots(2), false),
        ];
        let mut after = before;
        after[1].held = true;
        assert_eq!(woken(&before, &after), [3]);
    }

    #[test]
    fn writer_release_wakes_readers_up_to_the_next_writer() {
        let queue = [
            position(1, Share::WRITER, true),
            position(2, Share::READER, false),
            position(3, Share::READER, false),
            position(4, Share::WRITER, false),
            position(5, Share::READER, false),
        ];
        assert_eq!(woken(&queue, &queue[1..]), [2, 3]);
    }

    #[test]
    fn lost_wakeup_is_repeated_by_the_next_change() {
        let queue = [
            position(2, Share::READER, false),
            position(3, Share::READER, false),
            position(4, Share::WRITER, false),
        ];
        let mut granted = queue.to_vec();
        granted[0].held = true;
        assert!(
            woken(&queue, &granted).contains(&3),
            "3 could be granted before this change and still can"
        );
    }

    #[test]
    fn inspection_wakes_no_waiter() {
        let queue = [
            position(1, Share::READER, false),
            position(2, Share::READER, false),
        ];
        assert_eq!(woken(&queue, &queue), [0; 0]);
    }

    #[test]
    fn first_waiter_watches_all_holders() {
        let share = |permits| Share::slots(permits, 3).expect("at most 3 permits");
        let queue = [
            position(1, share(1), true),
            position(2, share(1), true),
            position(3, share(2), false),
            position(4, share(1), false),
        ];
        assert_eq!(watches(&queue, 2).len(), 2);
        assert_eq!(watches(&queue, 3), [queue[2].process]);
    }
}
