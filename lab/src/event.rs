//! What a taker did, and when.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};

/// One event; as text one line, written in one go, so that a taker that is killed leaves whole lines.
///
/// ```text
/// TIME HAND NAME asked | granted TOKEN WEIGHT CAPACITY | trusted UNTIL | gave-up | refused | ran-out | gone
///              | nested TOKEN COUNT | unnested COUNT | releasing | released | unsure | seen | killed
///              | uses DESCRIPTORS THREADS TASKS MEMORY
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: nanoseconds of `CLOCK_BOOTTIME`. Never later than what it tells of for `asked`, `releasing` and `killed`,
    /// never earlier for the others, so that a hold is never told longer than it was. For `trusted`, `ran-out` and `gone` it
    /// is when the hold was last known to be good.
    pub at: u64,
    /// Which thread or task of which process, numbered through a whole test.
    pub hand: u32,
    /// Which lock: its index among the names of the orders.
    pub name: u16,
    /// What happened.
    pub what: What,
}

/// What can happen to a hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is about to acquire.
    Asked,
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
    Trusted {
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
    GaveUp,
    /// The store could not be reached, or refused.
    Refused,
    /// Its time is over by its own clock.
    RanOut,
    /// It heard that the store no longer has it.
    Gone,
    /// It is about to release.
    Releasing,
    /// It has released.
    Released,
    /// It has released, and does not know whether the store had it until then.
    Unsure,
    /// Somebody else saw it waiting in line.
    Seen,
    /// Its process is about to be killed.
    Killed,
    /// What its process uses.
    Uses(Uses),
}

/// What a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
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
        write!(f, "{} {} {} ", self.at, self.hand, self.name)?;
        match self.what {
            What::Asked => f.write_str("asked"),
            What::Granted { token, weight, capacity } => write!(f, "granted {token} {weight} {capacity}"),
            What::Trusted { until } => write!(f, "trusted {until}"),
            What::Nested { token, count } => write!(f, "nested {token} {count}"),
            What::Unnested { count } => write!(f, "unnested {count}"),
            What::GaveUp => f.write_str("gave-up"),
            What::Refused => f.write_str("refused"),
            What::RanOut => f.write_str("ran-out"),
            What::Gone => f.write_str("gone"),
            What::Releasing => f.write_str("releasing"),
            What::Released => f.write_str("released"),
            What::Unsure => f.write_str("unsure"),
            What::Seen => f.write_str("seen"),
            What::Killed => f.write_str("killed"),
            What::Uses(Uses { descriptors, threads, tasks, memory }) => {
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
    let (at, hand, name) = (word()?.parse()?, word()?.parse()?, word()?.parse()?);
    let what = match word()? {
        "asked" => What::Asked,
        "granted" => What::Granted { token: word()?.parse()?, weight: word()?.parse()?, capacity: word()?.parse()? },
        "trusted" => What::Trusted { until: word()?.parse()? },
        "nested" => What::Nested { token: word()?.parse()?, count: word()?.parse()? },
        "unnested" => What::Unnested { count: word()?.parse()? },
        "gave-up" => What::GaveUp,
        "refused" => What::Refused,
        "ran-out" => What::RanOut,
        "gone" => What::Gone,
        "releasing" => What::Releasing,
        "released" => What::Released,
        "unsure" => What::Unsure,
        "seen" => What::Seen,
        "killed" => What::Killed,
        "uses" => What::Uses(Uses {
            descriptors: word()?.parse()?,
            threads: word()?.parse()?,
            tasks: word()?.parse()?,
            memory: word()?.parse()?,
        }),
        other => bail!("nothing is called {other:?}"),
    };
    Ok(Event { at, hand, name, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_back() {
        let granted = What::Granted { token: 7, weight: 1, capacity: 4 };
        let ends =
            [What::GaveUp, What::Refused, What::RanOut, What::Gone, What::Releasing, What::Released, What::Unsure];
        let uses = What::Uses(Uses { descriptors: 9, threads: 4, tasks: 2, memory: 8_000 });
        let others = [What::Asked, granted, What::Trusted { until: 30 }, What::Seen, uses];
        let nested = [What::Nested { token: 7, count: 2 }, What::Unnested { count: 1 }];
        for what in others.into_iter().chain(nested).chain(ends) {
            let event = Event { at: 12, hand: 3, name: 1, what };
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn a_torn_line_is_no_event() {
        assert!("12 3 0 granted 7".parse::<Event>().is_err());
        assert!("12 3 0 gran".parse::<Event>().is_err());
    }
}
