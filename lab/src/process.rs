//! A taker, seen from outside.

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

/// Where its events go.
#[derive(Debug)]
enum EventSource {
    /// Heard as they happen.
    Pipe(Receiver<Event>),
    /// Read from a file, this far by now.
    File(PathBuf, u64),
}

impl Process {
    /// Starts a taker whose events are heard as they happen.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(worker: &Path, config: WorkerConfig) -> Result<Self> {
        let mut child = command(worker, &config)?
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the taker")?;
        let stdout = child.stdout.take().context("its stdout is a pipe")?;
        Ok(Self::new(child, config, EventSource::Pipe(listen(stdout))))
    }

    /// Starts a taker whose events go to a file: many cost less so.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_recording(worker: &Path, config: WorkerConfig, file: PathBuf) -> Result<Self> {
        let child = command(worker, &config)?
            .stdout(File::create(&file)?)
            .spawn()
            .context("cannot start the taker")?;
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

    /// The number of its first hand.
    #[must_use]
    pub fn first_thread(&self) -> u32 {
        self.config.first_thread
    }

    /// Gives the word that a hand waits for: to begin, or to release.
    ///
    /// # Errors
    /// If it is dead.
    pub fn send_signal(&mut self) -> Result<()> {
        let stdin = self
            .stdin
            .as_mut()
            .context("it was told that no word will come")?;
        Ok(stdin.write_all(b"\n")?)
    }

    /// Whether a quiet one has told anything yet: then it has opened its store.
    ///
    /// # Errors
    /// If it is not quiet.
    pub fn has_recorded(&self) -> Result<bool> {
        let EventSource::File(file, _) = &self.source else {
            bail!("it is heard as it tells")
        };
        Ok(fs::metadata(file)?.len() > 0)
    }

    /// What a quiet one has told since this was last asked.
    ///
    /// # Errors
    /// If it is not quiet, or what it told makes no sense.
    pub fn new_events(&mut self) -> Result<&[Event]> {
        let EventSource::File(file, read) = &mut self.source else {
            bail!("it is heard as it tells")
        };
        let (new_events, end) = read_events(file, *read)?;
        *read = end;
        let known = self.events.len();
        self.events.extend(new_events);
        Ok(&self.events[known..])
    }

    /// All that a quiet one has told.
    ///
    /// # Errors
    /// As [`new_events`](Self::new_events).
    pub fn all_events(&mut self) -> Result<&[Event]> {
        self.new_events()?;
        Ok(&self.events)
    }

    /// The last that a quiet one has told of its hands.
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

    /// Waits for its next event of a kind.
    ///
    /// # Errors
    /// If it ends before, or takes longer than [`DEADLINE`].
    pub fn wait_for(&mut self, wanted: impl Fn(&EventKind) -> bool) -> Result<Event> {
        let EventSource::Pipe(receiver) = &self.source else {
            bail!("a quiet taker is not heard")
        };
        loop {
            let event = receiver
                .recv_timeout(DEADLINE)
                .with_context(|| format!("hand {}", self.config.first_thread))?;
            self.events.push(event);
            if wanted(&event.kind) {
                return Ok(event);
            }
        }
    }

    /// Waits until it holds; its token.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    pub fn wait_for_grant(&mut self) -> Result<Event> {
        self.wait_for(|what| matches!(what, EventKind::Granted { .. }))
    }

    /// Whether it has ended, in whichever way.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills it as `kill -9` does; all events it told.
    ///
    /// # Errors
    /// If it was dead already.
    pub fn kill(mut self) -> Result<Vec<Event>> {
        self.kill_now()?;
        self.end()
    }

    /// Kills it, and waits for nothing; when that was.
    ///
    /// # Errors
    /// If it was dead already.
    pub fn kill_now(&mut self) -> Result<u64> {
        ensure!(
            self.child.try_wait()?.is_none(),
            "hand {} ended before it was killed",
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

    /// Stops it, as `kill -STOP` does, until it is [resumed](Self::resume).
    ///
    /// # Errors
    /// If it is dead.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        until("a process to be stopped", || {
            Ok(self.is_stopped()?.then_some(()))
        })
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it is dead.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for its end, which must be a good one; all events it told.
    ///
    /// # Errors
    /// If it fails, or takes longer than [`DEADLINE`].
    pub fn finish(self) -> Result<Vec<Event>> {
        self.finish_within(DEADLINE)
    }

    /// As [`finish`](Self::finish), for one that has more to do.
    ///
    /// # Errors
    /// If it fails, or takes longer than `timeout`.
    pub fn finish_within(mut self, timeout: Duration) -> Result<Vec<Event>> {
        let status = until_within(timeout, "a taker to end", || Ok(self.child.try_wait()?))?;
        ensure!(
            status.success(),
            "hand {} failed: {status}",
            self.first_thread()
        );
        self.end()
    }

    /// All that one told which is dead, or about to be.
    ///
    /// # Errors
    /// If what it told makes no sense.
    pub fn end(mut self) -> Result<Vec<Event>> {
        self.child.wait()?;
        let mut events = std::mem::take(&mut self.events);
        match &self.source {
            EventSource::Pipe(receiver) => loop {
                match receiver.recv_timeout(DEADLINE) {
                    Ok(event) => events.push(event),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => bail!("its stdout stays open after its end"),
                }
            },
            EventSource::File(file, read) => events.extend(read_events(file, *read)?.0),
        }
        Ok(events)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("a process has a number")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether it stands still.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn is_paused(&self) -> Result<bool> {
        self.is_stopped()
    }

    /// Or has ended, which is as still. The state is the word after the program's name in parentheses.
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
        // It may be dead and buried already, which is as good.
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
            // Nobody listens any more when the process is dropped, and a torn line is the last of one that was killed.
            let Ok(event) = event else { return };
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Whole lines only: the last of a taker that was killed may be torn. Also where the next would begin.
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
