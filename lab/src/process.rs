//! A worker process, seen from outside.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{DEADLINE, Event, EventKind, WorkerConfig, now, until, until_within};

/// A running `worker`. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    config: WorkerConfig,
    stdin: Option<ChildStdin>,
    /// The file to which the worker records its events, and how far it has been read. It has no
    /// name, and ends with the process.
    file: File,
    read: u64,
    events: Vec<Event>,
    /// How many of the events were waited for, or came before one that was.
    awaited: usize,
}

impl Process {
    /// Starts a worker that records its events to a file.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(worker: &Path, config: WorkerConfig) -> Result<Self> {
        let file = tempfile::tempfile()?;
        let mut child = Command::new(worker)
            .arg(serde_json::to_string(&config)?)
            .envs(config.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .spawn()
            .context("cannot start the worker")?;

        let stdin = child.stdin.take();
        Ok(Self {
            child,
            config,
            stdin,
            file,
            read: 0,
            events: Vec::new(),
            awaited: 0,
        })
    }

    /// The number of the worker's first thread.
    #[must_use]
    pub fn first_thread(&self) -> u32 {
        self.config.first_thread
    }

    /// The id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the line that a thread waits for: to begin, or to release.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn send_signal(&mut self) -> Result<()> {
        let stdin = self
            .stdin
            .as_mut()
            .context("the stdin of the worker was closed")?;
        Ok(stdin.write_all(b"\n")?)
    }

    /// Whether the worker has recorded an event yet. It has then opened its store.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn has_recorded(&self) -> Result<bool> {
        Ok(self.file.metadata()?.len() > 0)
    }

    /// The events that the worker has recorded since the last call.
    ///
    /// # Errors
    /// If an event is invalid.
    pub fn new_events(&mut self) -> Result<&[Event]> {
        let (new_events, end) = read_events(&self.file, self.read)?;
        self.read = end;
        let known = self.events.len();
        self.events.extend(new_events);
        Ok(&self.events[known..])
    }

    /// All events that the worker has recorded.
    ///
    /// # Errors
    /// As [`new_events`](Self::new_events).
    pub fn all_events(&mut self) -> Result<&[Event]> {
        self.new_events()?;
        Ok(&self.events)
    }

    /// The last event of the worker's threads.
    ///
    /// # Errors
    /// As [`new_events`](Self::new_events).
    pub fn last_event(&mut self) -> Result<Option<Event>> {
        let mut events = self.all_events()?.iter().rev();
        Ok(events
            .find(|event| !matches!(event.kind, EventKind::ResourceUsage(_) | EventKind::Killed))
            .copied())
    }

    /// Waits for the next event of a kind.
    ///
    /// # Errors
    /// If the worker ends first, or the event does not come before [`DEADLINE`].
    pub fn wait_for(&mut self, wanted: impl Fn(&EventKind) -> bool) -> Result<Event> {
        let thread = self.first_thread();
        until(&format!("an event of thread {thread}"), || {
            let has_ended = self.has_ended()?;
            let awaited = self.awaited;
            let mut events = self.all_events()?.iter().enumerate().skip(awaited);
            if let Some((number, event)) = events.find(|(_, event)| wanted(&event.kind)) {
                let found = *event;
                self.awaited = number + 1;
                return Ok(Some(found));
            }
            ensure!(!has_ended, "the worker of thread {thread} ended");
            Ok(None)
        })
    }

    /// Waits for a grant, and returns it.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    pub fn wait_for_grant(&mut self) -> Result<Event> {
        self.wait_for(|kind| matches!(kind, EventKind::Granted { .. }))
    }

    /// Whether the process has ended, in any way.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills the process as `kill -9` does, and returns all its events.
    ///
    /// # Errors
    /// If the process had already ended.
    pub fn kill(mut self) -> Result<Vec<Event>> {
        self.kill_now()?;
        self.end()
    }

    /// Kills the process without waiting for its end, and returns when.
    ///
    /// # Errors
    /// If the process had already ended.
    pub fn kill_now(&mut self) -> Result<u64> {
        ensure!(
            self.child.try_wait()?.is_none(),
            "the worker of thread {} ended before it was killed",
            self.first_thread()
        );

        let at = now();
        self.child.kill()?;

        let threads = self.config.first_thread..self.config.first_thread + self.config.threads;
        self.events.extend(threads.map(|thread| Event {
            at,
            thread,
            name: 0,
            kind: EventKind::Killed,
        }));
        Ok(at)
    }

    /// Stops the process as `kill -STOP` does, until it is [resumed](Self::resume).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        until("a process to be stopped", || {
            Ok(self.is_paused()?.then_some(()))
        })
    }

    /// Continues a stopped process.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for a successful end, and returns all events.
    ///
    /// # Errors
    /// If the worker fails or takes longer than [`DEADLINE`].
    pub fn finish(self) -> Result<Vec<Event>> {
        self.finish_within(DEADLINE)
    }

    /// As [`finish`](Self::finish), with another time limit.
    ///
    /// # Errors
    /// If the worker fails or takes longer than `timeout`.
    pub fn finish_within(mut self, timeout: Duration) -> Result<Vec<Event>> {
        let status = until_within(timeout, "a worker to end", || Ok(self.child.try_wait()?))?;
        ensure!(
            status.success(),
            "the worker of thread {} failed: {status}",
            self.first_thread()
        );
        self.end()
    }

    /// All events of a process that has ended or is about to.
    ///
    /// # Errors
    /// If an event is invalid.
    pub fn end(mut self) -> Result<Vec<Event>> {
        self.child.wait()?;
        self.new_events()?;
        Ok(std::mem::take(&mut self.events))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process has a pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether the process is stopped or has ended. The state is the word after the program's name
    /// in parentheses.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub fn is_paused(&self) -> Result<bool> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        Ok(stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(['T', 'Z'])))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads whole lines only, because the last line of a killed worker may be torn. Returns also where
/// the next line begins.
fn read_events(file: &File, from: u64) -> Result<(Vec<Event>, u64)> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len() - from)?];
    // The worker writes at the position of the file, so that this must not move it.
    file.read_exact_at(&mut bytes, from)?;
    let text = String::from_utf8(bytes)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let events = text[..whole]
        .lines()
        .map(str::parse)
        .collect::<Result<_>>()?;
    Ok((events, from + whole as u64))
}
