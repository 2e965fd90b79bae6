//! The handle of a baseline's process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{BaselineConfig, Reply, Request, Response};
use crate::{DEADLINE, now, until};

/// A running `baseline` process. Dropping the handle kills the process.
#[derive(Debug)]
pub struct Client {
    child: Child,
    stdin: ChildStdin,
    responses: Receiver<Response>,
}

impl Client {
    /// Starts a process. `program` is the path of `baseline`. Its first reply is [`Reply::Ready`].
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn launch(program: &Path, config: &BaselineConfig) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(serde_json::to_string(config)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The programs that a baseline starts are killed and paused with it.
            .process_group(0);
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

    /// Starts a process and waits until it is ready.
    ///
    /// # Errors
    /// If the process cannot be started, or is not ready in time.
    pub fn start(program: &Path, config: &BaselineConfig) -> Result<Self> {
        let running = Self::launch(program, config)?;
        let response = running.receive()?;
        ensure!(
            response.reply == Reply::Ready,
            "the baseline is not ready: {response:?}"
        );
        Ok(running)
    }

    /// Sends a request without waiting for the reply.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn send(&mut self, request: Request) -> Result<()> {
        Ok(self
            .stdin
            .write_all((serde_json::to_string(&request)? + "\n").as_bytes())?)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// If the process ends first, or the reply takes longer than [`DEADLINE`].
    pub fn receive(&self) -> Result<Response> {
        self.receive_within(DEADLINE)?
            .context("the baseline did not reply in time")
    }

    /// Waits for the next reply for at most `timeout`.
    ///
    /// # Errors
    /// If the process ends first.
    pub fn receive_within(&self, timeout: Duration) -> Result<Option<Response>> {
        match self.responses.recv_timeout(timeout) {
            Ok(response) => Ok(Some(response)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the process of a baseline ended"),
        }
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
        let response = self.request(Request::Acquire(TIMEOUT_MILLIS))?;
        ensure!(
            matches!(response.reply, Reply::Granted(_)),
            "a free lock was not granted: {response:?}"
        );
        Ok(response)
    }

    /// Kills the process with SIGKILL, and returns the time of the kill.
    ///
    /// # Errors
    /// If the process had ended before.
    pub fn kill(mut self) -> Result<u64> {
        let at = now();
        self.signal(Signal::KILL)?;
        self.child.wait()?;
        Ok(at)
    }

    /// Pauses the process with SIGSTOP, and waits until it has stopped.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        until("a process to be stopped", || {
            let processes = self.processes()?;
            let stopped: Result<Vec<bool>> = processes.into_iter().map(is_stopped).collect();
            Ok(stopped?.into_iter().all(|stopped| stopped).then_some(()))
        })
    }

    /// Continues the process.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process has a number")?;
        Ok(kill_process_group(pid, signal)?)
    }

    /// Returns the process, and the programs that it has started.
    fn processes(&self) -> Result<Vec<u32>> {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        let children = children.split_whitespace().map(str::parse);
        let children: Vec<u32> = children.collect::<Result<_, _>>()?;
        Ok(std::iter::once(own).chain(children).collect())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail if the process was killed and reaped before, which is fine.
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

fn is_stopped(process: u32) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let state = stat.rsplit(") ").next();
    Ok(state.is_some_and(|state| state.starts_with('T')))
}

/// How long a free lock may take to be granted.
const TIMEOUT_MILLIS: u64 = 30_000;

fn listen(stdout: ChildStdout) -> Receiver<Response> {
    let (sender, responses) = channel();

    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            // A torn line is the last line of a killed process.
            let response = line
                .map_err(anyhow::Error::from)
                .and_then(|line| Ok(serde_json::from_str(&line)?));
            let Ok(response) = response else { return };
            // Sending fails after the handle was dropped.
            if sender.send(response).is_err() {
                return;
            }
        }
    });
    responses
}
