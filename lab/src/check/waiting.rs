//! Every waiter is granted in time, and the next waiter is notified of a release at once.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Cycle, Span, cycles};
use crate::{Event, Hold};

/// The fewest hand-overs whose median is checked.
const HAND_OVERS_MIN: usize = 5;
/// In nanoseconds: a client that requested this long before a release was in the queue by then.
const QUEUED_WITHIN: u64 = 50_000_000;

/// Checks that no request waits for longer than `bound` allows: in a queue, or with a limit of its
/// own. Time within `disturbed` is not counted. A request that has not ended waits until `end`.
///
/// [`Recovery`](super::Recovery) checks each lock. This function checks each waiter.
///
/// Shows L4, L6.
///
/// # Errors
/// The first request that waits for longer.
pub fn waits(
    events: &[Event],
    disturbed: &[Span],
    end: u64,
    bound: impl Fn(&Cycle) -> Duration,
) -> Result<()> {
    for cycle in cycles(events).into_values().flatten() {
        let over = cycle.ended.map_or(end, |(at, _)| at);
        let span = (cycle.requested, cycle.granted.unwrap_or(over));
        let time = quiet_time(span, disturbed);
        ensure!(
            time <= bound(&cycle),
            "waited for too long, {time:?}: {cycle:?}"
        );
    }
    Ok(())
}

/// The part of a span that lies in no disturbed one. The disturbed spans do not overlap.
pub(super) fn quiet_time(span: Span, disturbed: &[Span]) -> Duration {
    let common = |other: &Span| other.1.min(span.1).saturating_sub(other.0.max(span.0));
    let excused: u64 = disturbed.iter().map(common).sum();

    Duration::from_nanos((span.1.saturating_sub(span.0)).saturating_sub(excused))
}

/// The spans and some time after each, in which claims of killed and cut-off clients end. Spans
/// that then touch become one.
#[must_use]
pub fn extended(spans: &[Span], after: Duration) -> Vec<Span> {
    let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    let mut merged: Vec<Span> = Vec::new();

    for (from, to) in spans {
        let to = to.saturating_add(after);
        match merged.last_mut().filter(|last| last.1 >= *from) {
            Some(last) => last.1 = last.1.max(to),
            None => merged.push((*from, to)),
        }
    }
    merged
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
