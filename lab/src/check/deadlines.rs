//! A wait with a limit ends in time.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Span, quiet_time};
use crate::{Event, EventKind};

/// Checks that each request with a wait limit is granted or ends within that limit and `more`. Time
/// within `disturbed` is not counted.
///
/// # Errors
/// The first request that ends later.
///
/// Shows L6.
pub fn deadlines(
    events: &[Event],
    timeout: impl Fn(u32) -> Option<Duration>,
    disturbed: &[Span],
    more: Duration,
) -> Result<()> {
    let mut requested: HashMap<u32, u64> = HashMap::new();
    for event in super::in_time(events) {
        match event.kind {
            EventKind::Requested => drop(requested.insert(event.thread, event.at)),
            EventKind::Granted { .. } | EventKind::TimedOut | EventKind::Refused => {
                let Some(since) = requested.remove(&event.thread) else {
                    continue;
                };
                let took = quiet_time((since, event.at), disturbed);
                let limit = timeout(event.thread);
                let is_late = limit.is_some_and(|limit| took > limit + more);
                ensure!(!is_late, "the request ended after {took:?}: {event}");
            }
            _ => {}
        }
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::samples::events;
    use super::*;

    fn recorded(lines: &[&str]) -> Result<()> {
        let timeout = |thread| (thread == 7).then_some(Duration::from_nanos(10));
        deadlines(
            &events(lines),
            timeout,
            &[(40, 60)],
            Duration::from_nanos(5),
        )
    }

    #[test]
    fn time_of_faults_is_excused() {
        recorded(&["30 7 0 requested", "65 7 0 timed-out"]).unwrap();
        assert!(recorded(&["30 7 0 requested", "66 7 0 timed-out"]).is_err());
    }

    #[test]
    fn deadline_kept_passes() {
        recorded(&[
            "1 7 0 requested",
            "16 7 0 timed-out",
            "17 7 0 requested",
            "20 7 0 granted 5 1 1",
        ])
        .unwrap();
        recorded(&["1 8 0 requested", "99 8 0 granted 5 1 1"]).unwrap();
    }

    #[test]
    fn late_reply_is_detected() {
        assert!(recorded(&["1 7 0 requested", "17 7 0 timed-out"]).is_err());
        assert!(recorded(&["1 7 0 requested", "17 7 0 refused"]).is_err());
        assert!(recorded(&["1 7 0 requested", "17 7 0 granted 5 1 1"]).is_err());
    }
}
