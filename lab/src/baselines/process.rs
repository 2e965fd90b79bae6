//! The `baseline` program: acquires and uses a lock step by step.
//!
//! It reads requests on standard input and writes a response to each on standard output.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Baseline, BaselineConfig};
use crate::now;
use crate::resources::Resources;

/// A request for one step, which is one line of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Send the first request of an acquisition.
    Begin,
    /// Acquire the lock, waiting for at most this many milliseconds.
    Acquire(u64),
    /// Read the counter and the register.
    Read,
    /// Write the value read plus one to both, and append an entry to the log.
    Write,
    /// Return whether the lock reports itself as held.
    Check,
    /// Release the lock.
    Release,
    /// Do all of that once. The numbers are the timeout of `Acquire` and the time to hold, both in
    /// milliseconds.
    Cycle(u64, u64),
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The process has started. It is connected, if its lock connects at the start.
    Ready,
    /// The step is done and has no result.
    Done,
    /// The lock was granted with this token, which is 0 if the lock has no tokens.
    Granted(u64),
    /// Another client kept the lock until the timeout.
    NotGranted,
    /// The service returned an error or did not reply.
    Failed(String),
    /// Whether the register accepted the write; `None` if the lock has no tokens.
    Wrote(Option<bool>),
    /// Whether the lock reports itself as held.
    Holds(bool),
    /// The lock was held from the first to the second time, on the common clock.
    Cycled(u64, u64),
}

/// A reply, and the time of its step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// The time before the step.
    pub from: u64,
    /// The time after the step.
    pub to: u64,
    /// The outcome of the step.
    pub reply: Reply,
}

/// Executes the requests on standard input until that ends.
///
/// # Errors
/// If a request cannot be read, or a response cannot be written.
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

/// Writes a response with one system call, so that a killed process has written all of it or none.
fn send(response: &Response) -> Result<()> {
    let line = serde_json::to_string(response)? + "\n";
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// The worker, and the values that it has read from the resources.
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
        Ok(Self {
            number: config.worker,
            baseline: config.contender.make(config)?,
            resources: Resources::of(&config.resources)?,
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

    /// Writes to the resources. A register whose read was rejected is not written.
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
