//! The `baseline` program, which acquires and uses a lock step by step, and its handle.
//!
//! It reads requests on standard input and writes a response to each on standard output.

use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Baseline, BaselineConfig, contender_named};
use crate::resources::{OpKind, Resources};
use crate::{Peer, now};

/// How long a free lock may take to be granted.
const TAKE_TIMEOUT_MILLIS: u64 = 30_000;

/// The first line of a process. Its lock is connected then, if it connects at the start.
const READY: &str = "ready";

/// A request for one step, which is one line of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Send the first of several requests of an acquisition.
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
    /// The step is done and has no result.
    Done,
    /// The lock was granted.
    Granted,
    /// Another client kept the lock until the timeout.
    NotGranted,
    /// The service returned an error or did not reply.
    Failed(String),
    /// `Begin`: whether an acquisition has several requests.
    Begun(bool),
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

/// A running `baseline` process. Dropping the handle kills the process.
#[derive(Debug)]
pub struct Client {
    /// The process itself.
    pub process: Peer,
}

impl Client {
    /// Starts a process, and waits until it is ready. `program` is the path of `baseline`.
    ///
    /// # Errors
    /// If the process cannot be started, or is not ready in time.
    pub fn start(program: &Path, config: &BaselineConfig) -> Result<Self> {
        let mut command = Peer::command(program);
        let mut process = Peer::start(command.arg(serde_json::to_string(config)?))?;
        ensure!(
            process.receive_line()? == READY,
            "the baseline is not ready"
        );
        Ok(Self { process })
    }

    /// Sends a request without waiting for the reply.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn send(&mut self, request: Request) -> Result<()> {
        self.process.send(&request)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// If the process ends first, or does not reply in time.
    pub fn receive(&mut self) -> Result<Response> {
        self.process.receive()
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub fn request(&mut self, request: Request) -> Result<Response> {
        self.send(request)?;
        self.receive()
    }

    /// Acquires the lock, which must be free.
    ///
    /// # Errors
    /// If the lock is not granted.
    pub fn take(&mut self) -> Result<Response> {
        let response = self.request(Request::Acquire(TAKE_TIMEOUT_MILLIS))?;
        ensure!(
            response.reply == Reply::Granted,
            "a free lock was not granted: {response:?}"
        );
        Ok(response)
    }
}

/// Executes the requests on standard input until that ends.
///
/// # Errors
/// If a request cannot be read, or a response cannot be written.
pub fn run(config: &BaselineConfig) -> Result<()> {
    let mut worker = Worker {
        number: config.worker,
        baseline: contender_named(&config.contender)?.make(config)?,
        resources: Resources::of(&config.resources)?,
        token: 0,
        counter: 0,
        register: None,
        entries: 0,
    };
    println!("{READY}");

    for line in io::stdin().lines() {
        let request = serde_json::from_str(&line?)?;
        let from = now();
        let reply = worker
            .handle(request)
            .unwrap_or_else(|error| Reply::Failed(format!("{error:#}")));
        send(from, reply)?;
    }
    Ok(())
}

/// Writes a response with one system call, so that a killed process has written all of it or none.
fn send(from: u64, reply: Reply) -> Result<()> {
    let to = now();
    let line = serde_json::to_string(&Response { from, to, reply })? + "\n";
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
    fn handle(&mut self, request: Request) -> Result<Reply> {
        match request {
            Request::Begin => return Ok(Reply::Begun(self.baseline.begin()?)),
            Request::Acquire(millis) => return self.acquire(millis),
            Request::Check => return Ok(Reply::Holds(self.baseline.holds())),
            Request::Cycle(timeout, work) => return self.cycle(timeout, work),
            Request::Read => self.read()?,
            Request::Write => self.write()?,
            Request::Release => self.baseline.release()?,
        }
        Ok(Reply::Done)
    }

    fn acquire(&mut self, millis: u64) -> Result<Reply> {
        let Some(token) = self.baseline.acquire(Duration::from_millis(millis))? else {
            return Ok(Reply::NotGranted);
        };
        self.token = token;
        Ok(Reply::Granted)
    }

    fn read(&mut self) -> Result<()> {
        let counter = self.resources.counter.read(self.number, self.token)?;
        self.counter = counter.unwrap_or(0);
        if self.token > 0 {
            self.register = self.resources.register.read(self.number, self.token)?;
        }
        Ok(())
    }

    /// Writes to the resources. A register whose read was rejected is not written.
    fn write(&mut self) -> Result<()> {
        let Resources {
            counter,
            register,
            log,
        } = &self.resources;
        let changed = OpKind::Wrote(self.counter + 1);
        counter.change(self.number, self.token, changed)?;
        if self.token == 0 {
            return Ok(());
        }

        self.entries += 1;
        let entry = OpKind::Appended(self.entries);
        log.change(self.number, self.token, entry)?;
        if let Some(found) = self.register {
            let changed = OpKind::Wrote(found + 1);
            register.change(self.number, self.token, changed)?;
        }
        Ok(())
    }

    fn cycle(&mut self, timeout: u64, work: u64) -> Result<Reply> {
        if self.acquire(timeout)? != Reply::Granted {
            return Ok(Reply::NotGranted);
        }

        let granted = now();
        self.read()?;
        sleep(Duration::from_millis(work));
        self.write()?;
        let releasing = now();
        self.baseline.release()?;
        Ok(Reply::Cycled(granted, releasing))
    }
}
