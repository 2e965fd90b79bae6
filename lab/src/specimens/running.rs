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

use super::{Answer, Order, Said, Terms};
use crate::{DEADLINE, now, until};

/// A running `specimen`. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: ChildStdin,
    heard: Receiver<Said>,
}

impl Running {
    /// Starts one; `program` is the path of `specimen`. Its first answer is [`Answer::Ready`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn launch(program: &Path, terms: &Terms) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg(serde_json::to_string(terms)?).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let stdin = child.stdin.take().context("its stdin is a pipe")?;
        let heard = listen(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Self { child, stdin, heard })
    }

    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, or is not ready in time.
    pub fn start(program: &Path, terms: &Terms) -> Result<Self> {
        let running = Self::launch(program, terms)?;
        let said = running.hear()?;
        ensure!(said.answer == Answer::Ready, "it says {said:?}");
        Ok(running)
    }

    /// Gives it an order, and waits for nothing.
    ///
    /// # Errors
    /// If it is dead.
    pub fn order(&mut self, order: Order) -> Result<()> {
        Ok(self.stdin.write_all((serde_json::to_string(&order)? + "\n").as_bytes())?)
    }

    /// Its next answer.
    ///
    /// # Errors
    /// If it ends before, or takes longer than [`DEADLINE`].
    pub fn hear(&self) -> Result<Said> {
        self.hear_within(DEADLINE)?.context("it says nothing")
    }

    /// Its next answer, if it comes in so much time.
    ///
    /// # Errors
    /// If it ends before.
    pub fn hear_within(&self, patience: Duration) -> Result<Option<Said>> {
        match self.heard.recv_timeout(patience) {
            Ok(said) => Ok(Some(said)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("a specimen ended"),
        }
    }

    /// Gives it an order, and waits for the answer.
    ///
    /// # Errors
    /// As [`order`](Self::order) and [`hear`](Self::hear).
    pub fn ask(&mut self, order: Order) -> Result<Said> {
        self.order(order)?;
        self.hear()
    }

    /// Has it take the lock, which nobody else may have.
    ///
    /// # Errors
    /// If it is not granted.
    pub fn take(&mut self) -> Result<Said> {
        let said = self.ask(Order::Acquire(PATIENCE_MILLIS))?;
        ensure!(matches!(said.answer, Answer::Granted(_)), "a free lock was not granted: {said:?}");
        Ok(said)
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
            Ok(stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')).then_some(()))
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

impl Drop for Running {
    fn drop(&mut self) {
        // It may be dead and buried already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a free lock may take to be granted.
const PATIENCE_MILLIS: u64 = 30_000;

fn listen(stdout: ChildStdout) -> Receiver<Said> {
    let (told, heard) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            // A torn line is the last of one that was killed, and nobody listens any more when it was dropped.
            let said = line.map_err(anyhow::Error::from).and_then(|line| Ok(serde_json::from_str(&line)?));
            let Ok(said) = said else { return };
            if told.send(said).is_err() {
                return;
            }
        }
    });
    heard
}
