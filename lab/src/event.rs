//! What a taker did, and when.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

/// One event; as text one line, written in one go, so that a taker that is killed leaves whole lines.
///
/// ```text
/// TIME THREAD NAME requested | granted TOKEN WEIGHT CAPACITY | valid-until UNTIL | timed-out | refused | expired | revoked
///              | nested TOKEN COUNT | unnested COUNT | releasing | released | release-unknown | observed | killed
///              | uses DESCRIPTORS THREADS TASKS MEMORY
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: nanoseconds of `CLOCK_BOOTTIME`. Never later than what it tells of for `asked`, `releasing` and `killed`,
    /// never earlier for the others, so that a hold is never told longer than it was. For `trusted`, `ran-out` and `gone` it
    /// is when the hold was last known to be good.
    pub at: u64,
    /// Which thread or task of which process, numbered through a whole test.
    pub thread: u32,
    /// Which lock: its index among the names of the orders.
    pub name: u16,
    /// What happened.
    pub kind: EventKind,
}

/// What can happen to a hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is about to acquire.
    Requested,
    /// It has been granted.
    Granted {
        /// The number of the grant.
        token: u64,
        /// How much it takes.
        weight: u32,
        /// Of how much.
        capacity: u32,
    },
    /// Until then its guard says that it holds, if nothing more is heard.
    ValidUntil {
        /// Nanoseconds of the same clock.
        until: u64,
    },
    /// It has acquired again what it holds.
    Nested {
        /// The number of the grant.
        token: u64,
        /// How many guards it has now.
        count: u32,
    },
    /// It has given back one of several guards.
    Unnested {
        /// How many are left.
        count: u32,
    },
    /// It waited no longer.
    TimedOut,
    /// The store could not be reached, or refused.
    Refused,
    /// Its time is over by its own clock.
    Expired,
    /// It heard that the store no longer has it.
    Revoked,
    /// It is about to release.
    Releasing,
    /// It has released.
    Released,
    /// It has released, and does not know whether the store had it until then.
    ReleaseUnknown,
    /// Somebody else saw it waiting in line.
    ObservedWaiting,
    /// Its process is about to be killed.
    Killed,
    /// What its process uses.
    ResourceUsage(ResourceUsage),
}

/// What a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Tasks of its own runtime that are alive, if it has one.
    pub tasks: usize,
    /// Memory that is in use, in KiB.
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
    let mut word = || words.next().context("it is too short");
    let (at, thread, name) = (word()?.parse()?, word()?.parse()?, word()?.parse()?);
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
        other => bail!("nothing is called {other:?}"),
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
