//! The owner of a lock: a process, or the writer of standard input.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, stdin};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold::Error;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{getpgrp, tcgetpgrp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use tokio::sync::Notify;

use crate::process_state::pid_behind;
use crate::run::process_table::Process;

/// The owner of a lock. The lock is released when the owner ends. By default there is no owner, and
/// the hold does not depend on another process.
///
/// A thread blocks until the owner ends, and then notifies. If the end cannot be observed, the hold
/// lasts until a signal arrives.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    end: Arc<Notify>,
    process: Option<OwnerProcess>,
}

/// An owner that is a process.
#[derive(Debug)]
pub(super) struct OwnerProcess {
    pub(super) pidfd: OwnedFd,
    /// `None` if it has ended, or `/proc` does not show it.
    pub(super) entry: Option<Process>,
    /// Descriptors to close before the owner's descendants are ended: reading and signalling a
    /// process takes two, and other users of this process may have taken all others.
    pub(super) spare: Vec<OwnedFd>,
}

impl Owner {
    /// Returns the process behind a descriptor as the owner.
    pub(crate) fn process(pidfd: OwnedFd) -> Result<Self> {
        let process = OwnerProcess {
            entry: entry_behind(&pidfd),
            spare: vec![pidfd.try_clone()?, pidfd.try_clone()?],
            pidfd: pidfd.try_clone()?,
        };
        let owner = Self::watched(move || until_process_ends(&pidfd))?;
        Ok(Self {
            process: Some(process),
            ..owner
        })
    }

    /// Returns the writer of standard input as the owner.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if standard input has ended already or cannot be read.
    pub(crate) fn standard_input() -> Result<Self> {
        check_standard_input()?;
        Self::watched(until_input_ends)
    }

    fn watched(watch: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<Self> {
        let owner = Self::default();
        let end = Arc::clone(&owner.end);

        thread::Builder::new()
            .name("owner".to_owned())
            .spawn(move || match watch() {
                Ok(()) => end.notify_one(),
                Err(error) => tracing::debug!(%error, "the end of the owner cannot be observed"),
            })
            .context("cannot start a thread")?;
        Ok(owner)
    }

    /// Returns the process that is the owner.
    pub(super) fn as_process(&mut self) -> Option<&mut OwnerProcess> {
        self.process.as_mut()
    }

    /// Returns the program of the process as a label; empty if it has ended.
    pub(super) fn program(&self) -> String {
        let entry = self
            .process
            .as_ref()
            .and_then(|process| process.entry.as_ref());
        entry.map_or_else(String::new, Process::program)
    }

    /// Returns what the owner is, for a message.
    pub(super) fn shown(&self) -> &'static str {
        match self.process {
            Some(_) => WAITING_PROCESS,
            None => "standard input",
        }
    }

    /// Waits until the owner ends. Must not be called again after it has returned.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call finds an end that a dropped call has not returned.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }
}

/// Opens a descriptor of a process. The process id may be reused later, but the descriptor always
/// refers to this process.
pub(crate) fn open_process(pid: i32) -> Result<OwnedFd> {
    let number = if pid > 0 { Pid::from_raw(pid) } else { None };
    let opened = number.map(|pid| pidfd_open(pid, PidfdFlags::empty()));

    match opened {
        Some(Ok(pidfd)) => Ok(pidfd),
        Some(Err(Errno::SRCH)) | None => {
            Err(Error::invalid(format!("process {pid} does not exist"))
                .help("give --while-pid a process that runs")
                .into())
        }
        // The kernel reports INVAL or NOENT, by its version.
        Some(Err(Errno::INVAL | Errno::NOENT)) => {
            Err(Error::invalid(format!("{pid} is a thread, not a process"))
                .help("give --while-pid the id of the thread's process")
                .into())
        }
        Some(Err(error @ (Errno::NOSYS | Errno::PERM))) => {
            let message = format!("cannot wait for the end of process {pid}: pidfd_open: {error}");
            let remedy = "allow pidfd_open in the sandbox (Linux has it since version 5.3), or call \
                          `leasehold acquire --detach` and `leasehold release`";
            Err(Error::unsupported(message).help(remedy).into())
        }
        Some(Err(error)) => Err(io::Error::from(error))
            .with_context(|| format!("cannot wait for the end of process {pid}")),
    }
}

/// Refuses an owner that leasehold cannot end when the lock is lost.
pub(crate) fn check_can_be_ended(pid: i32) -> Result<()> {
    let obstacle = match Pid::from_raw(pid).map(test_kill_process) {
        // The kernel discards signals to it that its own container sends. On a whole machine, all
        // processes would be its descendants.
        _ if pid == 1 => "is the first process of the container or machine",
        Some(Err(Errno::PERM)) => "belongs to another user",
        // If it has ended meanwhile, so does the hold.
        _ => return Ok(()),
    };

    let message = format!("process {pid} {obstacle}, so a loss of the lock could not end it");
    Err(Error::invalid(message)
        .help("give --on-lost ignore, and call `leasehold check` between two steps")
        .into())
}

/// Returns the program of a process as a label; empty if it has ended.
pub(crate) fn program(pid: i32) -> String {
    // The kernel keeps 15 bytes of a name, which it may cut inside a character. A label may have
    // more.
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

fn entry_behind(pidfd: &OwnedFd) -> Option<Process> {
    let info = Path::new("/proc/self/fdinfo").join(pidfd.as_raw_fd().to_string());
    Process::find(pid_behind(&info)?)
}

fn check_standard_input() -> Result<()> {
    let input = File::from(stdin().as_fd().try_clone_to_owned()?);
    let null = fs::metadata("/dev/null").context("cannot read /dev/null")?;
    let metadata = input.metadata()?;

    // This is the standard input under cron and systemd, and of a background process without job
    // control.
    if metadata.mode() == null.mode() && metadata.rdev() == null.rdev() {
        return Err(Error::invalid(
            "standard input is /dev/null, so the lock would be released immediately",
        )
        .help("give --while-pid PID, in a script --while-pid $$")
        .into());
    }

    if input.is_terminal() && tcgetpgrp(&input) != Ok(getpgrp()) {
        return Err(Error::invalid(
            "standard input is a terminal, which a background process cannot read",
        )
        .help("give --while-pid PID, in a shell --while-pid $$")
        .into());
    }

    // An empty read fails as any other does, of a folder for example.
    if let Err(error) = (&input).read(&mut []) {
        let message = format!("standard input cannot be read: {error}");
        return Err(Error::invalid(message)
            .help("give --while-pid PID, in a script --while-pid $$")
            .into());
    }
    Ok(())
}

/// Blocks until the process ends. A pidfd becomes readable at that moment: see `pidfd_open`(2).
fn until_process_ends(pidfd: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    retry_on_intr(|| poll(&mut polled, None))?;
    Ok(())
}

/// Reads standard input to its end.
///
/// The other users of its descriptor may have made it non-blocking. A terminal cannot be read in the
/// background, and the shell may bring this process to the foreground again. After any other error
/// the writer is gone, as with a connection that was reset.
fn until_input_ends() -> io::Result<()> {
    // In the background, reading from a terminal then fails instead of stopping all of leasehold.
    SigSet::from_iter([Signal::SIGTTIN]).thread_block()?;
    let input = stdin().as_fd().try_clone_to_owned()?;
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(&input, &mut buffer) {
            Ok(1..) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut polled = [PollFd::new(&input, PollFlags::IN)];
                retry_on_intr(|| poll(&mut polled, None))?;
            }
            Err(Errno::IO) if tcgetpgrp(&input).is_ok_and(|group| group != getpgrp()) => {
                thread::sleep(BACKGROUND_PAUSE);
            }
            Ok(0) | Err(_) => return Ok(()),
        }
    }
}

/// An owner that is a process, in a message.
pub(super) const WAITING_PROCESS: &str = "the process that waits for it";
/// How often a process in the background looks whether it can read the terminal.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(250);
