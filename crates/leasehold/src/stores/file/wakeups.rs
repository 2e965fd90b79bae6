//! Whom a change of a line concerns.

use super::process::ProcessId;
use crate::{ClaimId, Share, admitted};

/// What decides whom a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) id: ClaimId,
    pub(super) process: ProcessId,
    pub(super) share: Share,
    pub(super) held: bool,
}

/// Whose life matters to the waiter at `at`.
pub(super) fn watches(positions: &[Position], at: usize) -> Vec<ProcessId> {
    if let Some(ahead) = positions[..at].iter().rev().find(|position| !position.held) {
        return vec![ahead.process];
    }
    let mut holders: Vec<ProcessId> = positions[..at]
        .iter()
        .map(|position| position.process)
        .collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Whom a change of the line concerns. Whoever may be granted is always among them, changed or not, so that a wake-up
/// that was lost with its sender's life is made up for by the next change. Looking is no change: two who wait for a
/// stranger would otherwise ring each other, and each himself, for as long as he stays.
pub(super) fn to_wake(before: &[Position], after: &[Position]) -> Vec<(ProcessId, ClaimId)> {
    if before == after {
        return Vec::new();
    }
    let granted = admitted(after.iter().map(|position| position.share));
    // Nobody changes places, so one pass over both finds everybody.
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

    fn position(number: u8, share: Share, held: bool) -> Position {
        Position {
            id: ClaimId::from_bytes([number; 16]),
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

    #[test]
    fn release_wakes_only_the_next_waiter() {
        let queue: Vec<Position> = (1..=5).map(|n| position(n, Share::MUTEX, n == 1)).collect();
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
        let queue: Vec<Position> = (1..=5).map(|n| position(n, Share::MUTEX, n == 1)).collect();
        let without = [queue[0], queue[1], queue[3], queue[4]];
        assert_eq!(woken(&queue, &without), [4]);
    }

    #[test]
    fn writer_release_wakes_readers_up_to_the_next_writer() {
        let (r, w) = (Share::READER, Share::WRITER);
        let queue = [
            position(1, w, true),
            position(2, r, false),
            position(3, r, false),
            position(4, w, false),
            position(5, r, false),
        ];
        assert_eq!(woken(&queue, &queue[1..]), [2, 3]);
    }

    #[test]
    fn lost_wakeup_is_repeated_by_the_next_change() {
        let (r, w) = (Share::READER, Share::WRITER);
        let queue = [
            position(2, r, false),
            position(3, r, false),
            position(4, w, false),
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
        let share = |take| Share::slots(take, 3).expect("it fits");
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
