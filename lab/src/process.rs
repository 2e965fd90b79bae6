//! A worker process, seen from outside.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{DEADLINE, Event, EventKind, WorkerConfig, now, until, until_within};

/// A running `worker`. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    config: WorkerConfig,
    stdin: Option<ChildStdin>,
    source: EventSource,
    events: Vec<Event>,
}

/// Where a worker records its events.
#[derive(Debug)]
enum EventSource {
    /// A pipe, read as the events happen.
    Pipe(Receiver<Event>),
    /// A file, and how far it has been read.
    File(PathBuf, u64),
}

impl Process {
    /// Starts a worker whose events arrive as they happen.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(worker: &Path, config: WorkerConfig) -> Result<Self> {
        let mut child = command(worker, &config)?
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the worker")?;
        let stdout = child.stdout.take().context("its stdout is a pipe")?;
        Ok(Self::new(child, config, EventSource::Pipe(listen(stdout))))
    }

    /// Starts a worker that records its events to a file, which is cheaper with many workers.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start_recording(worker: &Path, config: WorkerConfig, file: PathBuf) -> Result<Self> {
        let child = command(worker, &config)?
            .stdout(File::create(&file)?)
            .spawn()
            .context("cannot start the worker")?;
        Ok(Self::new(child, config, EventSource::File(file, 0)))
    }

    fn new(mut child: Child, config: WorkerConfig, source: EventSource) -> Self {
        let stdin = child.stdin.take();
        Self {
            child,
            config,
            stdin,
            source,
            events: Vec::new(),
        }
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

    /// Whether a recording worker has recorded an event yet. It has then opened its store.
    ///
    /// # Errors
    /// If the worker does not record to a file.
    pub fn has_recorded(&self) -> Result<bool> {
        let EventSource::File(file, _) = &self.source else {
            bail!("the worker does not record to a file")
        };
        Ok(fs::metadata(file)?.len() > 0)
    }

    /// The events that a recording worker has recorded since the last call.
    ///
    /// # Errors
    /// If the worker does not record to a file, or an event is invalid.
    pub fn new_events(&mut self) -> Result<&[Event]> {
        let EventSource::File(file, read) = &mut self.source else {
            bail!("the worker does not record to a file")
        };

        let (new_events, end) = read_events(file, *read)?;
        *read = end;
        let known = self.events.len();
        self.events.extend(new_events);
        Ok(&self.events[known..])
    }

    /// All events that a recording worker has recorded.
    ///
    /// # Errors
    /// As [`new_events`](Self::new_events).
    pub fn all_events(&mut self) -> Result<&[Event]> {
        self.new_events()?;
        Ok(&self.events)
    }

    /// The last event of a recording worker's threads.
    ///
    /// # Errors
    /// As [`new_events`](Self::new_events).
    pub fn last_event(&mut self) -> Result<Option<Event>> {
        self.new_events()?;
        Ok(self
            .events
            .iter()
            .rev()
            .find(|event| !matches!(event.kind, EventKind::ResourceUsage(_) | EventKind::Killed))
            .copied())
    }

    /// Waits for the next event of a kind.
    ///
    /// # Errors
    /// If the worker ends first, or the event does not come before [`DEADLINE`].
    pub fn wait_for(&mut self, wanted: impl Fn(&EventKind) -> bool) -> Result<Event> {
        let EventSource::Pipe(receiver) = &self.source else {
            bail!("the worker records to a file")
        };
        loop {
            let event = receiver
                .recv_timeout(DEADLINE)
                .with_context(|| format!("thread {}", self.config.first_thread))?;
            self.events.push(event);
            if wanted(&event.kind) {
                return Ok(event);
            }
        }
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
            Ok(self.is_stopped()?.then_some(()))
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
        let mut events = std::mem::take(&mut self.events);
        match &self.source {
            EventSource::Pipe(receiver) => loop {
                match receiver.recv_timeout(DEADLINE) {
                    Ok(event) => events.push(event),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        bail!("the stdout of the worker is still open after its end")
                    }
                }
            },
            EventSource::File(file, read) => events.extend(read_events(file, *read)?.0),
        }

        Ok(events)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process has a pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether the process is stopped.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub fn is_paused(&self) -> Result<bool> {
        self.is_stopped()
    }

    /// Whether the process is stopped or has ended. The state is the word after the program's name
    /// in parentheses.
    fn is_stopped(&self) -> Result<bool> {
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

fn command(worker: &Path, config: &WorkerConfig) -> Result<Command> {
    let mut command = Command::new(worker);
    command
        .arg(serde_json::to_string(config)?)
        .stdin(Stdio::piped());
    command.envs(config.environment.iter().cloned());
    Ok(command)
}

fn listen(stdout: ChildStdout) -> Receiver<Event> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let event = line
                .map_err(anyhow::Error::from)
                .and_then(|line| line.parse());
            // The line of a killed worker may be torn. The receiver is gone when the process is
            // dropped.
            let Ok(event) = event else { return };
            if sender.send(event).is_err() {
                return;
            }
        }
    });

    receiver
}

/// Reads whole lines only, because the last line of a killed worker may be torn. Returns also where
/// the next line begins.
fn read_events(file: &Path, from: u64) -> Result<(Vec<Event>, u64)> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let events = text[..whole]
        .lines()
        .map(str::parse)
        .collect::<Result<_>>()?;
    Ok((events, from + whole as u64))
}
