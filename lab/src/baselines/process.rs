//! What the `baseline` program does: takes and uses a lock step by step, as it is told on stdin, and tells of it on stdout.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Baseline, BaselineConfig};
use crate::now;
use crate::resources::Resources;

/// One step, as a line of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Request {
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
pub enum Reply {
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
pub struct Response {
    /// Before the step.
    pub from: u64,
    /// After it.
    pub to: u64,
    /// What became of it.
    pub reply: Reply,
}

/// Does what stdin says until it ends.
///
/// # Errors
/// If it cannot be told, or cannot tell.
pub fn run(config: &BaselineConfig) -> Result<()> {
    let mut worker = Worker::new(config)?;
    send(&Response {
        from: now(),
        to: now(),
        reply: Reply::Ready,
    })?;
    for line in io::stdin().lines() {
        let request = serde_json::from_str(&line?)?;
        let from = now();
        let reply = worker
            .handle(request)
            .unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        send(&Response {
            from,
            to: now(),
            reply,
        })?;
    }
    Ok(())
}

/// In one write, so that what is killed has said it whole or not at all.
fn send(response: &Response) -> Result<()> {
    let line = serde_json::to_string(response)? + "\n";
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Who holds, and what it knows of the resources.
struct Worker {
    number: u32,
    baseline: Box<dyn Baseline>,
    resources: Resources,
    token: u64,
    counter: u64,
    register: Option<u64>,
    entries: u64,
}

impl Worker {
    fn new(config: &BaselineConfig) -> Result<Self> {
        let (baseline, resources) = (
            config.contender.make(config)?,
            Resources::of(&config.resources)?,
        );
        Ok(Self {
            number: config.worker,
            baseline,
            resources,
            token: 0,
            counter: 0,
            register: None,
            entries: 0,
        })
    }

    fn handle(&mut self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::Begin => {
                self.baseline.begin()?;
                Reply::Done
            }
            Request::Acquire(millis) => self.acquire(millis)?,
            Request::Read => {
                self.read()?;
                Reply::Done
            }
            Request::Write => Reply::Wrote(self.write()?),
            Request::Check => Reply::Holds(self.baseline.holds()),
            Request::Release => {
                self.baseline.release()?;
                Reply::Done
            }
            Request::Cycle(timeout, work) => self.cycle(timeout, work)?,
        })
    }

    fn acquire(&mut self, millis: u64) -> Result<Reply> {
        let Some(token) = self.baseline.acquire(Duration::from_millis(millis))? else {
            return Ok(Reply::NotGranted);
        };
        self.token = token;
        Ok(Reply::Granted(token))
    }

    fn read(&mut self) -> Result<()> {
        self.counter = self
            .resources
            .counter
            .read(self.number, self.token)?
            .unwrap_or(0);
        if self.token > 0 {
            self.register = self.resources.register.read(self.number, self.token)?;
        }
        Ok(())
    }

    /// What was refused when it was read is not written.
    fn write(&mut self) -> Result<Option<bool>> {
        self.resources
            .counter
            .write(self.number, self.token, self.counter + 1)?;
        if self.token == 0 {
            return Ok(None);
        }
        self.entries += 1;
        self.resources
            .log
            .append(self.number, self.token, self.entries)?;
        let Some(found) = self.register else {
            return Ok(Some(false));
        };
        self.resources
            .register
            .write(self.number, self.token, found + 1)
            .map(Some)
    }

    fn cycle(&mut self, timeout: u64, work: u64) -> Result<Reply> {
        let Reply::Granted(_) = self.acquire(timeout)? else {
            return Ok(Reply::NotGranted);
        };
        let granted = now();
        self.read()?;
        sleep(Duration::from_millis(work));
        self.write()?;
        let releasing = now();
        self.baseline.release()?;
        Ok(Reply::Cycled(granted, releasing))
    }
}
