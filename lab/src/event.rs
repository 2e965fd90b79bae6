//! The events that a worker records.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};
use serde::{Deserialize, Serialize};

/// One event. Its text is one line, which a worker writes at once, so that a killed worker leaves
/// whole lines.
///
/// ```text
/// TIME THREAD NAME requested | granted TOKEN WEIGHT CAPACITY | valid-until UNTIL
///              | timed-out | refused | expired | revoked
///              | nested TOKEN COUNT | unnested COUNT
///              | started ID | completed ID
///              | releasing | released | release-unknown | observed | killed
///              | uses DESCRIPTORS THREADS TASKS MEMORY
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time in nanoseconds of `CLOCK_BOOTTIME`. For `requested`, `releasing` and `killed` it is
    /// never later than the event, for the others never earlier, so that a recorded hold is never
    /// longer than the real one. For `valid-until`, `expired` and `revoked` it is when the hold was
    /// last known to be valid.
    pub at: u64,
    /// The thread or task, numbered across all processes of a test.
    pub thread: u32,
    /// The index of the lock's name.
    pub name: u16,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kinds of events of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The thread is about to acquire.
    Requested,
    /// The claim was granted.
    Granted {
        /// The fencing token.
        token: u64,
        /// The weight of the claim's share.
        weight: u32,
        /// The capacity of the lock.
        capacity: u32,
    },
    /// The guard is valid until this time unless it is renewed.
    ValidUntil {
        /// Nanoseconds of the same clock.
        until: u64,
    },
    /// The thread acquired the lock again.
    Nested {
        /// The fencing token.
        token: u64,
        /// The number of guards now.
        count: u32,
    },
    /// The thread released one of several guards.
    Unnested {
        /// The number of guards left.
        count: u32,
    },
    /// The thread runs the job with this id: it was not done when the lock was granted.
    Started {
        /// The id of the job.
        id: u64,
    },
    /// The store has recorded the job of the hold that was released.
    Completed {
        /// The id of the job.
        id: u64,
    },
    /// The wait limit passed.
    TimedOut,
    /// The store was unreachable, or refused the request.
    Refused,
    /// The validity ended by the worker's clock.
    Expired,
    /// The store reported that the claim is gone.
    Revoked,
    /// The thread is about to release.
    Releasing,
    /// The thread has released.
    Released,
    /// The thread has released, and does not know whether the store still had the claim.
    ReleaseUnknown,
    /// The observer saw the claim waiting.
    ObservedWaiting,
    /// The process is about to be killed.
    Killed,
    /// The resource usage of the process.
    ResourceUsage(ResourceUsage),
}

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Live tasks of the process's own runtime, if it has one.
    pub tasks: usize,
    /// Allocated memory in KiB. Resident memory has also what the allocator keeps after an outage.
    pub memory: usize,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.at, self.thread, self.name)?;

        match self.kind {
            EventKind::Requested => f.write_str("requested"),
            EventKind::Granted {
                token,
                weight,
                capacity,
            } => write!(f, "granted {token} {weight} {capacity}"),
            EventKind::ValidUntil { until } => write!(f, "valid-until {until}"),
            EventKind::Nested { token, count } => write!(f, "nested {token} {count}"),
            EventKind::Unnested { count } => write!(f, "unnested {count}"),
            EventKind::Started { id } => write!(f, "started {id}"),
            EventKind::Completed { id } => write!(f, "completed {id}"),
            EventKind::TimedOut => f.write_str("timed-out"),
            EventKind::Refused => f.write_str("refused"),
            EventKind::Expired => f.write_str("expired"),
            EventKind::Revoked => f.write_str("revoked"),
            EventKind::Releasing => f.write_str("releasing"),
            EventKind::Released => f.write_str("released"),
            EventKind::ReleaseUnknown => f.write_str("release-unknown"),
            EventKind::ObservedWaiting => f.write_str("observed"),
            EventKind::Killed => f.write_str("killed"),
            EventKind::ResourceUsage(ResourceUsage {
                descriptors,
                threads,
                tasks,
                memory,
            }) => {
                write!(f, "uses {descriptors} {threads} {tasks} {memory}")
            }
        }
    }
}

impl FromStr for Event {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        parse(line).with_context(|| format!("not an event: {line:?}"))
    }
}

fn parse(line: &str) -> Result<Event> {
    let mut words = line.split(' ');
    let mut word = || words.next().context("the line is too short");
    let at = word()?.parse()?;
    let thread = word()?.parse()?;
    let name = word()?.parse()?;
    let kind = match word()? {
        "requested" => EventKind::Requested,
        "granted" => EventKind::Granted {
            token: word()?.parse()?,
            weight: word()?.parse()?,
            capacity: word()?.parse()?,
        },
        "valid-until" => EventKind::ValidUntil {
            until: word()?.parse()?,
        },
        "nested" => EventKind::Nested {
            token: word()?.parse()?,
            count: word()?.parse()?,
        },
        "unnested" => EventKind::Unnested {
            count: word()?.parse()?,
        },
        "started" => EventKind::Started {
            id: word()?.parse()?,
        },
        "completed" => EventKind::Completed {
            id: word()?.parse()?,
        },
        "timed-out" => EventKind::TimedOut,
        "refused" => EventKind::Refused,
        "expired" => EventKind::Expired,
        "revoked" => EventKind::Revoked,
        "releasing" => EventKind::Releasing,
        "released" => EventKind::Released,
        "release-unknown" => EventKind::ReleaseUnknown,
        "observed" => EventKind::ObservedWaiting,
        "killed" => EventKind::Killed,
        "uses" => EventKind::ResourceUsage(ResourceUsage {
            descriptors: word()?.parse()?,
            threads: word()?.parse()?,
            tasks: word()?.parse()?,
            memory: word()?.parse()?,
        }),
        other => bail!("the event {other:?} does not exist"),
    };

    Ok(Event {
        at,
        thread,
        name,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_round_trips() {
        let granted = EventKind::Granted {
            token: 7,
            weight: 1,
            capacity: 4,
        };
        let ends = [
            EventKind::TimedOut,
            EventKind::Refused,
            EventKind::Expired,
            EventKind::Revoked,
            EventKind::Releasing,
            EventKind::Released,
            EventKind::ReleaseUnknown,
        ];
        let uses = EventKind::ResourceUsage(ResourceUsage {
            descriptors: 9,
            threads: 4,
            tasks: 2,
            memory: 8_000,
        });
        let others = [
            EventKind::Requested,
            granted,
            EventKind::ValidUntil { until: 30 },
            EventKind::ObservedWaiting,
            EventKind::Started { id: 5 },
            EventKind::Completed { id: 5 },
            uses,
        ];
        let nested = [
            EventKind::Nested { token: 7, count: 2 },
            EventKind::Unnested { count: 1 },
        ];

        for kind in others.into_iter().chain(nested).chain(ends) {
            let event = Event {
                at: 12,
                thread: 3,
                name: 1,
                kind,
            };
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn torn_line_is_not_an_event() {
        assert!("12 3 0 granted 7".parse::<Event>().is_err());
        assert!("12 3 0 gran".parse::<Event>().is_err());
    }
}
