//! A lock that a client waits for is not idle.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::cycles;
use crate::{Event, Hold};

/// The begin and the end of a time span.
pub type Span = (u64, u64);

/// The longest time for which a client waited for a lock that was not held, and the index of the
/// lock. Time within `disturbed` is not counted, and counting begins again after it. Time after
/// `end` is not counted either.
#[must_use]
pub fn idle_time(
    events: &[Event],
    holds: &[Hold],
    disturbed: &[Span],
    end: u64,
) -> (Duration, u16) {
    let cycles = cycles(events);
    let names = cycles
        .values()
        .flatten()
        .map(|cycle| cycle.name + 1)
        .max()
        .unwrap_or(0);

    let longest = |name: u16| {
        let wanted = cycles
            .values()
            .flatten()
            .filter(|cycle| cycle.name == name)
            .map(|cycle| {
                let over = cycle.ended.map_or(end, |(at, _)| at);
                (cycle.requested, cycle.granted.unwrap_or(over))
            });
        let held = holds
            .iter()
            .filter(|hold| hold.name == name)
            .map(|hold| (hold.granted, hold.until));
        only(wanted, held.chain(disturbed.iter().copied()), end)
    };

    let all = (0..names).map(|name| (Duration::from_nanos(longest(name)), name));
    all.max().unwrap_or_default()
}

/// Checks that no client waits longer than `bound` for a lock that is not held, outside of faults.
///
/// Returns the longest time.
///
/// # Errors
/// If a client does, with the time and the lock.
///
/// Shows L2.
pub fn idle(
    events: &[Event],
    holds: &[Hold],
    disturbed: &[Span],
    end: u64,
    bound: Duration,
) -> Result<Duration> {
    let (time, name) = idle_time(events, holds, disturbed, end);
    ensure!(
        time <= bound,
        "lock {name} was idle for {time:?} outside of a fault while a client waited"
    );
    Ok(time)
}

/// The longest time up to `end` that lies in a span of `wanted` and in no span of `not`.
fn only(wanted: impl Iterator<Item = Span>, not: impl Iterator<Item = Span>, end: u64) -> u64 {
    let edges =
        |(from, to): Span, is_wanted: bool| [(from, 1, is_wanted), (to.max(from), -1, is_wanted)];
    let wanted = wanted.flat_map(|span| edges(span, true));
    let mut all: Vec<(u64, i64, bool)> = wanted
        .chain(not.flat_map(|span| edges(span, false)))
        .collect();
    all.push((end, 0, true));
    // At one moment, begins come before ends, so that no idle time of zero length is found.
    all.sort_by_key(|&(at, step, _)| (at, -step));
    let mut count = [0, 0];
    let mut since = None;
    let mut longest = 0;

    for (at, step, is_wanted) in all.into_iter().take_while(|&(at, ..)| at <= end) {
        count[usize::from(is_wanted)] += step;
        let is_idle = count[1] > 0 && count[0] == 0;
        longest = longest.max(since.map_or(0, |since| at - since));
        since = is_idle.then(|| since.unwrap_or(at));
    }
    longest
}
