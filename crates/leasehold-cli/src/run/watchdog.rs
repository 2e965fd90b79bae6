//! The watchdog: a process that kills COMMAND if leasehold itself cannot.
//!
//! leasehold stops COMMAND before the hold ends. It cannot do so while it is stopped (SIGSTOP), or
//! after it was killed. So a second process starts COMMAND, adopts all orphans among its
//! descendants, and receives the end of the hold.
//!
//! ```text
//! leasehold ── end of the hold, Noted, Kill ─► watchdog ── parent of ──► COMMAND
//!           ◄── changes of COMMAND, Acts ─────
//!     the end passes     ──► Acts to leasehold, KILL to all descendants
//!     the socket closes  ──► leasehold was killed: KILL to all descendants, and the locks are
//!                            released when the last of them has ended
//! ```
//! If the watchdog is killed, the kernel kills COMMAND, leasehold adopts the other descendants, and
//! kills them. A signal to the watchdog goes to leasehold, because it is the parent that COMMAND
//! sees. A real-time signal ends the watchdog, and leasehold then sends it to itself.
//!
//! A hold without an expiry time needs no watchdog: on the file store the kernel keeps the lock as
//! long as the processes exist.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use nix::sys::signal::SigmaskHow;
use rustix::io::write;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, waitpid};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::exec_shim::Spawn;
use super::nested;
use super::signals::standard_signals;
use crate::own_program::{WATCHDOG_ARGUMENT, start_as};

/// The running watchdog. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    socket: UnixStream,
    pid: Pid,
    /// How the process has ended, once it was reaped. Its id may then belong to another process.
    ended: Cell<Option<WaitStatus>>,
    acts: Cell<bool>,
    has_printed: Cell<bool>,
    all_ended: Cell<bool>,
}

impl Watchdog {
    /// Starts the watchdog, which starts the command, and sends [`Message::Started`].
    ///
    /// `remaining` returns how long the hold stays valid.
    pub(crate) fn start(settings: Spawn<'_>, remaining: impl Fn() -> Duration) -> io::Result<Self> {
        let (own, other) = net::UnixStream::pair()?;
        // A stopped watchdog does not read.
        own.set_nonblocking(true)?;
        send_with_stdin(&own, hold_ends(&remaining).0)?;

        Ok(Self {
            socket: UnixStream::from_std(own)?,
            pid: spawn(settings, other)?,
            ended: Cell::new(None),
            acts: Cell::new(false),
            has_printed: Cell::new(false),
            all_ended: Cell::new(false),
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Returns whether the watchdog kills the command, or has killed it.
    pub(crate) fn acts(&self) -> bool {
        self.acts.get()
    }

    /// Returns whether the command and all of its descendants have ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.all_ended.get()
    }

    /// Waits until the watchdog has printed that it acts. Standard error may be stuck.
    pub(crate) async fn printed(&self) {
        const PRINT_MAX: Duration = Duration::from_millis(300);

        let printed = async {
            while !self.has_printed.get() && matches!(self.receive().await, Ok(Some(_))) {}
        };
        // The message of a stuck standard error is lost.
        let _ = timeout(PRINT_MAX, printed).await;
    }

    /// Receives the next message, or `None` if the watchdog has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no message is lost.
    pub(crate) async fn receive(&self) -> io::Result<Option<Message>> {
        loop {
            self.socket.readable().await?;

            let mut bytes = [0; Message::LENGTH];
            match self.socket.try_read(&mut bytes) {
                Ok(Message::LENGTH) => return Ok(Some(self.note(Message::from_bytes(bytes)?))),
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It ended before it had read all messages.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&self, message: Message) -> Message {
        match message {
            Message::Acts => self.acts.set(true),
            Message::HasPrinted => self.has_printed.set(true),
            Message::AllEnded => self.all_ended.set(true),
            _ => {}
        }
        message
    }

    /// Sends the end of the hold at intervals. `remaining` returns how long the hold stays valid.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the last end that was sent applies.
    pub(crate) async fn follow(&self, remaining: impl Fn() -> Duration) -> Infallible {
        const LONGEST: Duration = Duration::from_secs(1);
        const SHORTEST: Duration = Duration::from_millis(20);

        loop {
            let (message, left) = hold_ends(&remaining);
            self.send(message);
            // A renewal that is reported late must not look like the end of the hold.
            sleep((left / 16).clamp(SHORTEST, LONGEST)).await;
        }
    }

    pub(crate) fn send(&self, message: Message) {
        // The kernel accepts such a short message as a whole or not at all.
        if let Err(error) = write(&self.socket, &message.to_bytes()) {
            tracing::warn!(%error, "the watchdog does not read");
        }
    }

    /// Stops leasehold if another process has stopped the watchdog, which is continued then: it
    /// must not be stopped, and a stop of the command's parent is meant for leasehold.
    pub(crate) fn check_stop(&self) {
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        if self.ended.get().is_some() {
            return;
        }
        match waitpid(Some(self.pid), options) {
            Ok(Some((_, status))) if status.stopped() => {
                // Neither call fails: the watchdog has not been reaped.
                let _ = kill_process(self.pid, Signal::CONT);
                let _ = kill_process(getpid(), Signal::STOP);
            }
            Ok(Some((_, status))) => self.ended.set(Some(status)),
            // It runs.
            Ok(None) | Err(_) => {}
        }
    }

    /// Waits until the watchdog, which has closed its socket, has ended. leasehold has adopted its
    /// children then. Returns the signal that has ended it.
    pub(crate) fn reap(&self) -> Option<i32> {
        if self.ended.get().is_none() {
            // Fails only if it was reaped before.
            let waited = waitpid(Some(self.pid), WaitOptions::empty()).ok().flatten();
            self.ended.set(waited.map(|(_, status)| status));
        }
        self.ended.get()?.terminating_signal()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if self.ended.get().is_none() {
            // Does not fail for a child that has not been reaped.
            let _ = kill_process(self.pid, Signal::KILL);
            self.reap();
        }
    }
}

fn spawn(settings: Spawn<'_>, socket: net::UnixStream) -> io::Result<Pid> {
    let mut start = start_as(WATCHDOG_ARGUMENT);
    start
        .arg(settings.hold_count.to_string())
        .args(settings.preparation.arguments(settings.command))
        // The numbers of an outer run are none of this one.
        .env_remove(nested::SLOT)
        .envs(settings.environment)
        .process_group(0)
        .stdin(OwnedFd::from(socket));

    // No signal may end or stop the watchdog before it can forward signals to leasehold.
    let mask = standard_signals().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let child = start.spawn();
    mask.thread_set_mask()?;

    let pid = i32::try_from(child?.id()).expect("the kernel numbers processes with 22 bits");
    Ok(Pid::from_raw(pid).expect("a child has a number above 0"))
}

/// Sends the first message with the standard input of the command. The socket is that of the
/// watchdog.
fn send_with_stdin(socket: &net::UnixStream, message: Message) -> io::Result<()> {
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));

    let bytes = message.to_bytes();
    sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// A message between leasehold and the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// To the watchdog: the end of the hold, a time of `CLOCK_BOOTTIME`, which also counts while
    /// the machine is suspended.
    HoldEnds(Duration),
    /// To the watchdog: leasehold has noted the last change of the command.
    Noted,
    /// To the watchdog: leasehold ends the command, and the watchdog kills all descendants.
    Kill,
    /// The id of the command.
    Started(i32),
    /// The number of the error.
    NotStarted(i32),
    /// The signal that has stopped the command.
    Stopped(i32),
    /// The exit code of the command.
    Exited(i32),
    /// The signal that has ended the command.
    Killed(i32),
    /// The command and all of its descendants have ended.
    AllEnded,
    /// The hold ends, and the watchdog kills all descendants.
    Acts,
    HasPrinted,
}

impl Message {
    pub(super) const LENGTH: usize = 9;

    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let number = |value: i32| u64::from(value.cast_unsigned());
        let (kind, value) = match self {
            Self::HoldEnds(end) => (0, u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)),
            Self::Noted => (1, 0),
            Self::Started(pid) => (2, number(pid)),
            Self::NotStarted(errno) => (3, number(errno)),
            Self::Stopped(signal) => (4, number(signal)),
            Self::Exited(code) => (5, number(code)),
            Self::Killed(signal) => (6, number(signal)),
            Self::AllEnded => (7, 0),
            Self::Acts => (8, 0),
            Self::HasPrinted => (9, 0),
            Self::Kill => (10, 0),
        };

        let mut bytes = [kind; Self::LENGTH];
        bytes[1..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LENGTH]) -> io::Result<Self> {
        let [kind, value @ ..] = bytes;
        let value = u64::from_le_bytes(value);
        let number = i32::try_from(value).unwrap_or(0);

        Ok(match kind {
            0 => Self::HoldEnds(Duration::from_nanos(value)),
            1 => Self::Noted,
            2 => Self::Started(number),
            3 => Self::NotStarted(number),
            4 => Self::Stopped(number),
            5 => Self::Exited(number),
            6 => Self::Killed(number),
            7 => Self::AllEnded,
            8 => Self::Acts,
            9 => Self::HasPrinted,
            10 => Self::Kill,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}

/// Returns the message about the end of the hold, and how long the hold stays valid.
fn hold_ends(remaining: impl Fn() -> Duration) -> (Message, Duration) {
    // Read before `remaining`: a pause between the two must not make the end late.
    let now = boot_time();
    let left = remaining();
    (Message::HoldEnds(now.saturating_add(left)), left)
}

pub(super) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::try_from(now).expect("the time since the boot is not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_its_bytes() {
        for message in [
            Message::HoldEnds(Duration::new(1_234_567, 89)),
            Message::Noted,
            Message::Started(4_194_304),
            Message::NotStarted(7),
            Message::Stopped(19),
            Message::Exited(255),
            Message::Killed(64),
            Message::AllEnded,
            Message::Acts,
            Message::HasPrinted,
            Message::Kill,
        ] {
            assert_eq!(Message::from_bytes(message.to_bytes()).unwrap(), message);
        }
    }
}
