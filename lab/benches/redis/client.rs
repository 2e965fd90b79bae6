//! A peer that runs in a process of its own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::peers;
use crate::workload::Workload;

/// A running peer, on one CPU. Dropping it kills the process.
///
/// The kernel also kills the peer when this process ends.
#[derive(Debug)]
pub(crate) struct Client {
    peer: String,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Starts a peer that sends its requests to the server at `url`.
    pub(crate) fn start(peer: &str, cpu: usize, url: &str) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "taskset", "-c", &cpu.to_string()])
            .args(peers::command(peer)?)
            .arg(url);
        peers::environment(peer, &mut command);

        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a peer")?;
        let output = BufReader::new(child.stdout.take().context("its stdout is a pipe")?);
        Ok(Self {
            peer: peer.to_owned(),
            child,
            output,
        })
    }

    /// Runs a task in the peer and returns its reply; `None` if the peer does not know the task.
    pub(crate) fn run(&mut self, task: &Workload) -> Result<Option<Vec<u64>>> {
        self.begin(task)?;
        self.end()
    }

    /// Sends a task to the peer, which begins it.
    pub(crate) fn begin(&mut self, task: &Workload) -> Result<()> {
        let line = serde_json::to_string(task)? + "\n";
        let stdin = self.child.stdin.as_mut().context("its stdin is a pipe")?;
        stdin
            .write_all(line.as_bytes())
            .with_context(|| format!("{} has ended", self.peer))
    }

    /// Waits for the reply to the task that the peer has begun.
    pub(crate) fn end(&mut self) -> Result<Option<Vec<u64>>> {
        let mut line = String::new();
        ensure!(
            self.output.read_line(&mut line)? > 0,
            "{} has ended instead of sending a reply",
            self.peer
        );
        serde_json::from_str(&line)
            .with_context(|| format!("{} sent the reply {line:?}", self.peer))
    }

    /// Returns the CPU time that all threads of the peer have used, in nanoseconds.
    pub(crate) fn cpu_used(&self) -> Result<u64> {
        let mut used = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let events = fs::read_to_string(thread?.path().join("schedstat"))?;
            used += events
                .split(' ')
                .next()
                .context("schedstat is empty")?
                .parse::<u64>()?;
        }
        Ok(used)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The process may have ended already. An error is harmless then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
