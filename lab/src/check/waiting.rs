//! Every waiter is granted in time, and the next waiter is notified of a release at once.

use std::time::Duration;

use super::{Cycle, Span, cycles};
use crate::{Event, Hold};

/// The fewest hand-overs whose median is checked.
const HAND_OVERS_MIN: usize = 5;
/// In nanoseconds: a client that requested this long before a release was in the queue by then.
const QUEUED_WITHIN: u64 = 50_000_000;

/// Finds a request that waited for longer than `bound` allows. Time within `disturbed` is not
/// counted. A request that has not ended waits until `end`.
///
/// [`Recovery`](super::Recovery) checks each lock. This function checks each waiter.
///
/// Shows L4.
#[must_use]
pub fn starved(
    events: &[Event],
    disturbed: &[Span],
    end: u64,
    bound: impl Fn(u16) -> Duration,
) -> Option<(Cycle, Duration)> {
    let waited = |cycle: Cycle| {
        let over = cycle.ended.map_or(end, |(at, _)| at);
        let span = (cycle.requested, cycle.granted.unwrap_or(over));
        (cycle, quiet_time(span, disturbed))
    };

    let all = cycles(events).into_values().flatten().map(waited);
    all.into_iter()
        .find(|(cycle, time)| *time > bound(cycle.name))
}

/// The part of a span that lies in no disturbed one. The disturbed spans do not overlap.
pub(crate) fn quiet_time(span: Span, disturbed: &[Span]) -> Duration {
    let common = |other: &Span| other.1.min(span.1).saturating_sub(other.0.max(span.0));
    let excused: u64 = disturbed.iter().map(common).sum();

    Duration::from_nanos((span.1.saturating_sub(span.0)).saturating_sub(excused))
}

/// The median time from the end of a hold to the next grant of its lock, if the next holder had
/// waited for a while. `None` if there are few such hand-overs outside of faults.
///
/// A waiter that is not notified finds its grant when it polls, which takes much longer.
///
/// Shows L2.
#[must_use]
pub fn hand_over_time(holds: &[Hold], disturbed: &[Span]) -> Option<Duration> {
    let mut sorted: Vec<&Hold> = holds
        .iter()
        .filter(|hold| hold.weight == hold.capacity)
        .collect();
    sorted.sort_unstable_by_key(|hold| (hold.name, hold.granted));

    let hand_over = |pair: &[&Hold]| {
        let (last, next) = (pair[0], pair[1]);
        let was_waiting = next.requested.saturating_add(QUEUED_WITHIN) < last.until;
        let time = next.granted.checked_sub(last.until)?;
        let is_quiet =
            quiet_time((last.until, next.granted), disturbed).as_nanos() == u128::from(time);
        (last.name == next.name && was_waiting && is_quiet).then_some(time)
    };
    let mut times: Vec<u64> = sorted.windows(2).filter_map(hand_over).collect();

    times.sort_unstable();
    let median = times.get(times.len() / 2)?;
    (times.len() >= HAND_OVERS_MIN).then(|| Duration::from_nanos(*median))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{events, mutex};
    use super::*;

    fn waits_too_long(lines: &[&str], disturbed: &[Span]) -> bool {
        let bound = |name| Duration::from_nanos(if name == 0 { 10 } else { 20 });
        starved(&events(lines), disturbed, 100, bound).is_some()
    }

    #[test]
    fn waiter_one_nanosecond_over_the_bound_is_detected() {
        assert!(!waits_too_long(
            &["1 7 0 requested", "11 7 0 granted 5 1 1"],
            &[]
        ));
        assert!(waits_too_long(
            &["1 7 0 requested", "12 7 0 granted 5 1 1"],
            &[]
        ));
        assert!(waits_too_long(
            &["1 7 0 requested", "12 7 0 timed-out"],
            &[]
        ));
        assert!(!waits_too_long(
            &["1 7 1 requested", "21 7 1 granted 5 1 1"],
            &[]
        ));
    }

    #[test]
    fn waiter_that_is_never_granted_is_detected_beside_others_that_are() {
        let others = [
            "91 8 0 requested",
            "92 8 0 granted 6 1 1",
            "93 8 0 releasing",
        ];

        assert!(waits_too_long(
            &[&["89 7 0 requested"], &others[..]].concat(),
            &[]
        ));
        assert!(!waits_too_long(
            &[&["90 7 0 requested"], &others[..]].concat(),
            &[]
        ));
    }

    #[test]
    fn time_of_faults_is_excused() {
        let lines = ["1 7 0 requested", "31 7 0 granted 5 1 1"];

        assert!(!waits_too_long(&lines, &[(5, 25)]));
        assert!(waits_too_long(&lines, &[(5, 24)]));
    }

    /// As many hand-overs of a waiting claim as count, each with this pause.
    fn hand_overs(pause: u64, count: usize) -> Vec<Hold> {
        let length = QUEUED_WITHIN + 2;
        let at = |number: usize| 10 + number as u64 * (length + pause);

        (0..=count)
            .map(|number| Hold {
                requested: at(number).saturating_sub(length + pause),
                ..mutex(number as u64 + 1, at(number), at(number) + length)
            })
            .collect()
    }

    #[test]
    fn hand_over_is_the_median_pause() {
        let mut holds = hand_overs(7, HAND_OVERS_MIN);
        assert_eq!(hand_over_time(&holds, &[]), Some(Duration::from_nanos(7)));

        // One slow hand-over does not change it.
        let last = holds.last_mut().expect("there are some");
        last.granted += 1_000;
        last.until += 1_000;
        assert_eq!(hand_over_time(&holds, &[]), Some(Duration::from_nanos(7)));
    }

    #[test]
    fn few_disturbed_or_late_requests_say_nothing() {
        let holds = hand_overs(7, HAND_OVERS_MIN - 1);
        assert_eq!(hand_over_time(&holds, &[]), None);

        let holds = hand_overs(7, HAND_OVERS_MIN);
        assert_eq!(hand_over_time(&holds, &[(0, u64::MAX)]), None);

        let late = |hold: &Hold| Hold {
            requested: hold.granted - 8,
            ..*hold
        };
        let holds: Vec<Hold> = holds.iter().map(late).collect();
        assert_eq!(hand_over_time(&holds, &[]), None);
    }
}
