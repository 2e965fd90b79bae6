//! The conversion of events to holds.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Result, bail};

use crate::{Event, EventKind};

/// A granted claim, from its request to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The thread.
    pub thread: u32,
    /// The index of the lock's name.
    pub name: u16,
    /// When it was requested.
    pub requested: u64,
    /// When the observer first saw it waiting, if it did.
    pub observed: Option<u64>,
    /// When the thread received the grant.
    pub granted: u64,
    /// When the hold ended at the earliest: the thread began to release it, was about to be killed,
    /// or its validity ended. `u64::MAX` if none of these happened.
    pub until: u64,
    /// The fencing token.
    pub token: u64,
    /// The weight of its share.
    pub weight: u32,
    /// The capacity of the lock.
    pub capacity: u32,
}

impl Hold {
    /// Whether the two holds may not overlap.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        self.name == other.name && self.weight.saturating_add(other.weight) > self.capacity
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            name,
            requested,
            granted,
            until,
            token,
            weight,
            capacity,
            ..
        } = self;
        write!(
            f,
            "thread {thread} of lock {name}: token {token}, {weight} of {capacity}, "
        )?;

        write!(f, "requested {requested}, held {granted} to {until}")
    }
}

/// The state of a thread.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Idle,
    Requesting {
        requested: u64,
        observed: Option<u64>,
    },
    Holding(Hold),
    /// Lost, or being released.
    Ending,
    Dead,
}

/// Converts events to holds. The events of each thread must be in order. A hold that ended before
/// its grant was recorded is left out.
///
/// # Errors
/// If the events of a thread contradict each other.
pub fn holds(events: &[Event]) -> Result<Vec<Hold>> {
    let mut stages: HashMap<u32, Stage> = HashMap::new();

    let mut holds = Vec::new();
    for event in in_time(events) {
        let stage = stages.entry(event.thread).or_insert(Stage::Idle);
        if let Stage::Holding(hold) = *stage {
            holds.extend(ended(hold, &event));
        }
        *stage = next(*stage, &event)?;
    }

    holds.extend(stages.into_values().filter_map(|stage| match stage {
        Stage::Holding(hold) => Some(hold),
        _ => None,
    }));
    holds.retain(|hold| hold.until > hold.granted);
    Ok(holds)
}

/// The hold with its end, if the event ends it.
fn ended(hold: Hold, event: &Event) -> Option<Hold> {
    let until = match event.kind {
        // The guard was not used any more after the validity ended.
        EventKind::Killed => event.at.min(hold.until),
        // The hold was valid at least until then, whether or not its guard was checked.
        EventKind::Expired if hold.until < u64::MAX => event.at.max(hold.until),
        EventKind::Releasing | EventKind::Revoked | EventKind::Expired => event.at,
        _ => return None,
    };
    Some(Hold { until, ..hold })
}

/// Sorts the events by time. The events of one thread keep their order even where the clock did not
/// advance between them.
pub(crate) fn in_time(events: &[Event]) -> Vec<Event> {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.at);
    events
}

fn next(stage: Stage, event: &Event) -> Result<Stage> {
    let &Event {
        at,
        thread,
        name,
        kind,
    } = event;

    Ok(match (stage, kind) {
        (Stage::Idle, EventKind::Requested) => Stage::Requesting {
            requested: at,
            observed: None,
        },
        (
            Stage::Requesting {
                requested,
                observed: None,
            },
            EventKind::ObservedWaiting,
        ) => Stage::Requesting {
            requested,
            observed: Some(at),
        },
        (
            Stage::Requesting {
                requested,
                observed,
            },
            EventKind::Granted {
                token,
                weight,
                capacity,
            },
        ) => Stage::Holding(Hold {
            thread,
            name,
            requested,
            observed,
            granted: at,
            until: u64::MAX,
            token,
            weight,
            capacity,
        }),
        // Later events of this kind are renewals.
        (Stage::Holding(hold), EventKind::ValidUntil { until }) => {
            Stage::Holding(Hold { until, ..hold })
        }
        (Stage::Holding(hold), EventKind::Releasing | EventKind::Expired | EventKind::Revoked)
            if hold.name == name =>
        {
            Stage::Ending
        }
        (Stage::Requesting { .. }, EventKind::TimedOut | EventKind::Refused)
        | (Stage::Ending, EventKind::Released | EventKind::ReleaseUnknown) => Stage::Idle,
        // A killed thread may have recorded an event after the time of its kill.
        (_, EventKind::Killed) | (Stage::Dead, _) => Stage::Dead,
        // A waiter may be granted by the time it was observed. Nesting and jobs have checkers of their own.
        (
            stage,
            EventKind::ResourceUsage(_)
            | EventKind::ObservedWaiting
            | EventKind::Nested { .. }
            | EventKind::Unnested { .. }
            | EventKind::Started { .. }
            | EventKind::Completed { .. },
        ) => stage,
        (stage, _) => bail!("unexpected event {event} after {stage:?}"),
    })
}
