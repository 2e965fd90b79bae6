//! A specimen, seen from outside.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{BaselineConfig, Reply, Request, Response};
use crate::{DEADLINE, now, until};

/// A running `specimen`. Dropping it kills it.
#[derive(Debug)]
pub struct Client {
    child: Child,
    stdin: ChildStdin,
    responses: Receiver<Response>,
}

impl Client {
    /// Starts one; `program` is the path of `specimen`. Its first answer is [`Reply::Ready`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn launch(program: &Path, config: &BaselineConfig) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(serde_json::to_string(config)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdin = child.stdin.take().context("its stdin is a pipe")?;
        let responses = listen(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Self {
            child,
            stdin,
            responses,
        })
    }

    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, or is not ready in time.
    pub fn start(program: &Path, config: &BaselineConfig) -> Result<Self> {
        let running = Self::launch(program, config)?;
        let response = running.receive()?;
        ensure!(response.reply == Reply::Ready, "it says {response:?}");
        Ok(running)
    }

    /// Gives it an order, and waits for nothing.
    ///
    /// # Errors
    /// If it is dead.
    pub fn send(&mut self, request: Request) -> Result<()> {
        Ok(self
            .stdin
            .write_all((serde_json::to_string(&request)? + "\n").as_bytes())?)
    }

    /// Its next answer.
    ///
    /// # Errors
    /// If it ends before, or takes longer than [`DEADLINE`].
    pub fn receive(&self) -> Result<Response> {
        self.receive_within(DEADLINE)?.context("it says nothing")
    }

    /// Its next answer, if it comes in so much time.
    ///
    /// # Errors
    /// If it ends before.
    pub fn receive_within(&self, timeout: Duration) -> Result<Option<Response>> {
        match self.responses.recv_timeout(timeout) {
            Ok(response) => Ok(Some(response)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("a specimen ended"),
        }
    }

    /// Gives it an order, and waits for the answer.
    ///
    /// # Errors
    /// As [`request`](Self::request) and [`receive`](Self::receive).
    pub fn request(&mut self, request: Request) -> Result<Response> {
        self.send(request)?;
        self.receive()
    }

    /// Has it take the lock, which nobody else may have.
    ///
    /// # Errors
    /// If it is not granted.
    pub fn take(&mut self) -> Result<Response> {
        let response = self.request(Request::Acquire(TIMEOUT_MILLIS))?;
        ensure!(
            matches!(response.reply, Reply::Granted(_)),
            "a free lock was not granted: {response:?}"
        );
        Ok(response)
    }

    /// Kills it as `kill -9` does; when that was.
    ///
    /// # Errors
    /// If it was dead already.
    pub fn kill(mut self) -> Result<u64> {
        let at = now();
        self.child.kill()?;
        self.child.wait()?;
        Ok(at)
    }

    /// Stops it, as `kill -STOP` does, and waits until it stands still.
    ///
    /// # Errors
    /// If it is dead.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        until("a process to be stopped", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
            Ok(stat
                .rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
                .then_some(()))
        })
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it is dead.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process has a number")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may be dead and buried already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a free lock may take to be granted.
const TIMEOUT_MILLIS: u64 = 30_000;

fn listen(stdout: ChildStdout) -> Receiver<Response> {
    let (told, responses) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            // A torn line is the last of one that was killed, and nobody listens any more when it was dropped.
            let response = line
                .map_err(anyhow::Error::from)
                .and_then(|line| Ok(serde_json::from_str(&line)?));
            let Ok(response) = response else { return };
            if told.send(response).is_err() {
                return;
            }
        }
    });
    responses
}
