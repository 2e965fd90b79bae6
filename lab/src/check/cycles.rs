//! The history of each thread as cycles, each from a request to its end.

use std::collections::HashMap;

use crate::{Event, EventKind};

/// One request of a thread and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The thread.
    pub thread: u32,
    /// The index of the lock's name.
    pub name: u16,
    /// When it was requested.
    pub requested: u64,
    /// When it was granted, if it was.
    pub granted: Option<u64>,
    /// When and how it ended: released, release unknown, timed out, refused or killed.
    pub ended: Option<(u64, EventKind)>,
}

impl Cycle {
    /// Whether the request was waiting at this time: neither granted nor ended.
    #[must_use]
    pub fn waits_at(&self, at: u64) -> bool {
        self.requested < at
            && self.granted.is_none_or(|granted| granted > at)
            && self.ended.is_none_or(|(over, _)| over > at)
    }
}

/// The cycles of each thread, in order.
#[must_use]
pub fn cycles(events: &[Event]) -> HashMap<u32, Vec<Cycle>> {
    let mut all: HashMap<u32, Vec<Cycle>> = HashMap::new();
    // A thread records its events in order, and its death last.
    for &Event {
        at,
        thread,
        name,
        kind,
    } in events
    {
        let own = all.entry(thread).or_default();

        let last = own.last_mut().filter(|cycle| cycle.ended.is_none());

        match (kind, last) {
            (EventKind::Requested, _) => own.push(Cycle {
                thread,
                name,
                requested: at,
                granted: None,
                ended: None,
            }),
            (EventKind::Granted { .. }, Some(cycle)) => cycle.granted = Some(at),
            (
                EventKind::TimedOut
                | EventKind::Refused
                | EventKind::Released
                | EventKind::ReleaseUnknown
                | EventKind::Killed,
                Some(cycle),
            ) => {
                cycle.ended = Some((at, kind));
            }
            _ => {}
        }
    }
    all
}
