//! A process that executes one request after the other.
//!
//! Each request is a line on its stdin, and the reply is a line on its stdout.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{DEADLINE, now, until};

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Peer {
    /// Begins the command line of a program that the kernel kills when the calling thread ends.
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command
    }

    /// Starts a process.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;

        let requests = child.stdin.take().context("its stdin is a pipe")?;
        let replies = child.stdout.take().context("its stdout is a pipe")?;
        Ok(Self {
            child,
            requests,
            replies: BufReader::new(replies),
        })
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn send_line(&mut self, line: &str) -> Result<()> {
        Ok(self.requests.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// If the process ends first, or the line does not come before [`DEADLINE`].
    pub fn receive_line(&mut self) -> Result<String> {
        if self.replies.buffer().is_empty() {
            let mut stdout = [PollFd::new(self.replies.get_ref(), PollFlags::IN)];
            let ready = poll(&mut stdout, Some(&Timespec::try_from(DEADLINE)?))?;
            ensure!(ready > 0, "the process did not reply in time");
        }

        let mut line = String::new();
        let length = self.replies.read_line(&mut line)?;
        ensure!(length > 0, "the process ended instead of sending a reply");
        Ok(line.trim_end().to_owned())
    }

    /// Sends a request as JSON.
    ///
    /// # Errors
    /// As [`send_line`](Self::send_line).
    pub fn send(&mut self, request: &impl Serialize) -> Result<()> {
        self.send_line(&serde_json::to_string(request)?)
    }

    /// Waits for a reply in JSON.
    ///
    /// # Errors
    /// As [`receive_line`](Self::receive_line), and if the line is another one.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.receive_line()?;
        serde_json::from_str(&line).with_context(|| format!("the reply {line:?}"))
    }

    /// Kills the process as `kill -9` does, and returns the time of the kill.
    ///
    /// # Errors
    /// If the process had ended before.
    pub fn kill(mut self) -> Result<u64> {
        let at = now();
        self.child.kill()?;
        self.child.wait()?;
        Ok(at)
    }

    /// Waits until the process ends by itself.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait(mut self) -> Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// Stops the process and the programs that it has started, and waits until they have stopped.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        until("a process to be stopped", || {
            let stopped: Result<Vec<bool>> =
                self.processes()?.into_iter().map(is_stopped).collect();
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
        for pid in self.processes()? {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// Returns the process, and the programs that it has started.
    fn processes(&self) -> Result<Vec<Pid>> {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        format!("{own} {children}")
            .split_whitespace()
            .map(|pid| Pid::from_raw(pid.parse()?).context("a pid is positive"))
            .collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_stopped(pid: Pid) -> Result<bool> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    let state = stat.rsplit(") ").next();
    Ok(state.is_some_and(|state| state.starts_with('T')))
}
