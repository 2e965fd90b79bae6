//! Whom a change of a line concerns.

use super::member::MemberId;
use crate::{ClaimId, Share, admitted};

/// What decides whom a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) id: ClaimId,
    pub(super) member: MemberId,
    pub(super) share: Share,
    pub(super) held: bool,
}

/// Whose life matters to the waiter at `at`.
pub(super) fn watched(seats: &[Seat], at: usize) -> Vec<MemberId> {
    if let Some(ahead) = seats[..at].iter().rev().find(|seat| !seat.held) {
        return vec![ahead.member];
    }
    let mut holders: Vec<MemberId> = seats[..at].iter().map(|seat| seat.member).collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Whom a change of the line concerns. Whoever may be granted is always among them, changed or not, so that a wake-up
/// that was lost with its sender's life is made up for by the next change. Looking is no change: two who wait for a
/// stranger would otherwise ring each other, and each himself, for as long as he stays.
pub(super) fn stirred(before: &[Seat], after: &[Seat]) -> Vec<(MemberId, ClaimId)> {
    if before == after {
        return Vec::new();
    }
    let granted = admitted(after.iter().map(|seat| seat.share));
    // Nobody changes places, so one pass over both finds everybody.
    let mut earlier = before.iter().enumerate();
    let mut watched_before = |id| earlier.find(|(_, seat)| seat.id == id).map(|(at, _)| watched(before, at));
    let mut concerned = Vec::new();
    for (at, seat) in after.iter().enumerate() {
        let before = watched_before(seat.id);
        if !seat.held && (at < granted || before != Some(watched(after, at))) {
            concerned.push((seat.member, seat.id));
        }
    }
    concerned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(number: u8, share: Share, held: bool) -> Seat {
        Seat { id: ClaimId::from_bytes([number; 16]), member: MemberId::from_bytes([number; 16]), share, held }
    }

    fn woken(before: &[Seat], after: &[Seat]) -> Vec<u8> {
        stirred(before, after).into_iter().map(|(member, _)| member.to_bytes()[0]).collect()
    }

    #[test]
    fn a_release_wakes_the_next_and_nobody_else() {
        let line: Vec<Seat> = (1..=5).map(|n| seat(n, Share::MUTEX, n == 1)).collect();
        assert_eq!(woken(&line, &line[1..]), [2]);
        let mut granted = line[1..].to_vec();
        granted[0].held = true;
        assert_eq!(woken(&line[1..], &granted), [0; 0], "3 watched 2 and still does");
    }

    #[test]
    fn whoever_left_the_middle_is_watched_no_more() {
        let line: Vec<Seat> = (1..=5).map(|n| seat(n, Share::MUTEX, n == 1)).collect();
        let without = [line[0], line[1], line[3], line[4]];
        assert_eq!(woken(&line, &without), [4]);
    }

    #[test]
    fn a_writer_s_release_wakes_all_readers_up_to_the_next_writer() {
        let (r, w) = (Share::READER, Share::WRITER);
        let line = [seat(1, w, true), seat(2, r, false), seat(3, r, false), seat(4, w, false), seat(5, r, false)];
        assert_eq!(woken(&line, &line[1..]), [2, 3]);
    }

    #[test]
    fn a_wake_up_lost_with_its_sender_is_made_up_for() {
        let (r, w) = (Share::READER, Share::WRITER);
        let line = [seat(2, r, false), seat(3, r, false), seat(4, w, false)];
        let mut granted = line.to_vec();
        granted[0].held = true;
        assert!(woken(&line, &granted).contains(&3), "3 could be granted before this change and still can");
    }

    #[test]
    fn looking_wakes_nobody() {
        let line = [seat(1, Share::READER, false), seat(2, Share::READER, false)];
        assert_eq!(woken(&line, &line), [0; 0]);
    }

    #[test]
    fn the_first_who_waits_watches_all_who_hold() {
        let share = |take| Share::slots(take, 3).expect("it fits");
        let line =
            [seat(1, share(1), true), seat(2, share(1), true), seat(3, share(2), false), seat(4, share(1), false)];
        assert_eq!(watched(&line, 2).len(), 2);
        assert_eq!(watched(&line, 3), [line[2].member]);
    }
}
