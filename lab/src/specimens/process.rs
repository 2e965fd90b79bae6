//! What the `specimen` program does: takes and uses a lock step by step, as it is told on stdin, and tells of it on stdout.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Specimen, Terms};
use crate::now;
use crate::victims::Victims;

/// One step, as a line of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first request of an acquisition.
    Begin,
    /// Take the lock, waiting so many milliseconds at most.
    Acquire(u64),
    /// Read the counter and the register.
    Read,
    /// Write to both one more than was read, and an entry to the log.
    Write,
    /// Say whether it holds.
    Check,
    /// Give the lock back.
    Release,
    /// All of that, holding for so many milliseconds; the first number is as for `Acquire`.
    Cycle(u64, u64),
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is there, and connected if it does so at once.
    Ready,
    /// Done, and there is nothing more to say.
    Done,
    /// It holds, under this token; 0 where it has none.
    Granted(u64),
    /// Somebody else does.
    NotGranted,
    /// The service says no, or nothing.
    Failed(String),
    /// Whether the register took what was written, if there is a token to show it.
    Wrote(Option<bool>),
    /// Whether it says that it holds.
    Holds(bool),
    /// It has held, by the common clock, from when until when.
    Cycled(u64, u64),
}

/// An answer, and when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    /// Before the step.
    pub from: u64,
    /// After it.
    pub to: u64,
    /// What became of it.
    pub answer: Answer,
}

/// Does what stdin says until it ends.
///
/// # Errors
/// If it cannot be told, or cannot tell.
pub fn run(terms: &Terms) -> Result<()> {
    let mut hand = Hand::new(terms)?;
    say(&Said { from: now(), to: now(), answer: Answer::Ready })?;
    for line in io::stdin().lines() {
        let order = serde_json::from_str(&line?)?;
        let from = now();
        let answer = hand.obey(order).unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        say(&Said { from, to: now(), answer })?;
    }
    Ok(())
}

/// In one write, so that what is killed has said it whole or not at all.
fn say(said: &Said) -> Result<()> {
    let line = serde_json::to_string(said)? + "\n";
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Who holds, and what it knows of the resources.
struct Hand {
    number: u32,
    specimen: Box<dyn Specimen>,
    victims: Victims,
    token: u64,
    counter: u64,
    register: Option<u64>,
    entries: u64,
}

impl Hand {
    fn new(terms: &Terms) -> Result<Self> {
        let (specimen, victims) = (terms.kind.make(terms)?, Victims::of(&terms.victims)?);
        Ok(Self { number: terms.hand, specimen, victims, token: 0, counter: 0, register: None, entries: 0 })
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        Ok(match order {
            Order::Begin => {
                self.specimen.begin()?;
                Answer::Done
            }
            Order::Acquire(millis) => self.acquire(millis)?,
            Order::Read => {
                self.read()?;
                Answer::Done
            }
            Order::Write => Answer::Wrote(self.write()?),
            Order::Check => Answer::Holds(self.specimen.holds()),
            Order::Release => {
                self.specimen.release()?;
                Answer::Done
            }
            Order::Cycle(patience, work) => self.cycle(patience, work)?,
        })
    }

    fn acquire(&mut self, millis: u64) -> Result<Answer> {
        let Some(token) = self.specimen.acquire(Duration::from_millis(millis))? else { return Ok(Answer::NotGranted) };
        self.token = token;
        Ok(Answer::Granted(token))
    }

    fn read(&mut self) -> Result<()> {
        self.counter = self.victims.counter.read(self.number, self.token)?.unwrap_or(0);
        if self.token > 0 {
            self.register = self.victims.register.read(self.number, self.token)?;
        }
        Ok(())
    }

    /// What was refused when it was read is not written.
    fn write(&mut self) -> Result<Option<bool>> {
        self.victims.counter.write(self.number, self.token, self.counter + 1)?;
        if self.token == 0 {
            return Ok(None);
        }
        self.entries += 1;
        self.victims.log.append(self.number, self.token, self.entries)?;
        let Some(found) = self.register else { return Ok(Some(false)) };
        self.victims.register.write(self.number, self.token, found + 1).map(Some)
    }

    fn cycle(&mut self, patience: u64, work: u64) -> Result<Answer> {
        let Answer::Granted(_) = self.acquire(patience)? else { return Ok(Answer::NotGranted) };
        let granted = now();
        self.read()?;
        sleep(Duration::from_millis(work));
        self.write()?;
        let releasing = now();
        self.specimen.release()?;
        Ok(Answer::Cycled(granted, releasing))
    }
}
