//! How leasehold ends: exit codes and error reports.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_dumpable;
use nix::sys::signal::Signal;
use nix::unistd::getpid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::low_level;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(u8),
    /// By the signal with this number. A shell shows 128 plus the number.
    Signal(i32),
}

impl Exit {
    pub(crate) const DONE: Self = Self::Code(0);
    pub(crate) const NO_SUCH_HOLD: Self = Self::Code(1);
    pub(crate) const IN_USE: Self = Self::Code(1);
    pub(crate) const WARNING: Self = Self::Code(1);
    pub(crate) const DANGER: Self = Self::Code(2);
    pub(crate) const MISSED: Self = Self::Code(3);
    pub(crate) const USAGE: Self = Self::Code(64);
    pub(crate) const UNAVAILABLE: Self = Self::Code(69);
    pub(crate) const INTERNAL: Self = Self::Code(70);
    pub(crate) const NOT_IN_TIME: Self = Self::Code(75);
    pub(crate) const LOST: Self = Self::Code(76);
    pub(crate) const DENIED: Self = Self::Code(77);
    pub(crate) const CANNOT_EXECUTE: Self = Self::Code(126);
    pub(crate) const NO_SUCH_COMMAND: Self = Self::Code(127);

    pub(crate) fn by_signal(signal: Signal) -> Self {
        Self::Signal(signal as i32)
    }

    /// Whether a command could not be started, as a shell reports it.
    pub(crate) fn is_not_started(self) -> bool {
        [Self::CANNOT_EXECUTE, Self::NO_SUCH_COMMAND].contains(&self)
    }

    /// The code that a process passed to exit(2). The kernel keeps its lowest 8 bits.
    pub(crate) fn by_code(code: i32) -> Self {
        Self::Code(code.to_le_bytes()[0])
    }

    /// Ends the process by the signal, or returns the exit code.
    ///
    /// A script, a shell loop, `make` and systemd distinguish a process that a signal ended from
    /// one that exits with 128 plus the number.
    pub(crate) fn end(self) -> ExitCode {
        if let Self::Signal(signal) = self {
            raise_with_default_action(signal);
        }
        self.into()
    }

    pub(crate) fn by_error(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<leasehold::Error>() {
            Some(error) if error.is_invalid() || error.is_mismatch() || error.is_unsupported() => {
                Self::USAGE
            }
            Some(error) if error.is_unavailable() => Self::UNAVAILABLE,
            Some(error) if error.is_lost() => Self::LOST,
            Some(error) if error.is_denied() => Self::DENIED,
            _ => Self::INTERNAL,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => code.into(),
            Exit::Signal(signal) => u8::try_from(128 + signal)
                .expect("signals are numbered up to 64")
                .into(),
        }
    }
}

/// Raises a signal after resetting its action. Returns if the signal does not end this process.
fn raise_with_default_action(signal: i32) {
    // The kernel discards a signal that the first process of a container sends to itself.
    let is_init = getpid().as_raw() == 1;
    // The command has written the core dump of this signal. A dump of leasehold would replace it.
    if is_init || set_dumpable(false).is_err() {
        return;
    }

    // Fails for a signal that signal-hook does not know. leasehold has no handler for such a
    // signal.
    let _ = low_level::emulate_default_handler(signal);
    // Fails for an invalid number only. The exit code then reports the signal.
    let _ = low_level::raise(signal);
}

/// Prints the error on one line and returns the exit code that belongs to it.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if is_closed_pipe(error) {
        // `head` and other readers expect this exit code from a program that writes to them.
        return Exit::by_signal(Signal::SIGPIPE);
    }

    let exhausted = exhausted(error).map(anyhow::Error::from);
    let error = exhausted.as_ref().unwrap_or(error);
    match error.downcast_ref::<leasehold::Error>() {
        // The library's error text already contains its causes.
        Some(error) => print_error(error),
        None if is_full_output(error) => {
            print_error(format_args!("cannot write to standard output: {error}"));
        }
        None => print_error(format_args!("{error:#}")),
    }
    Exit::by_error(error)
}

/// Whether standard output is a file that cannot grow. All other writes say what they write.
fn is_full_output(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let written = error.downcast_ref::<io::Error>();
    written.is_some_and(|error| matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull))
}

/// Returns the error with the limit to raise, if leasehold has reached one.
fn exhausted(error: &anyhow::Error) -> Option<leasehold::Error> {
    if error.is::<leasehold::Error>() {
        return None;
    }
    let cause = error.root_cause().downcast_ref::<io::Error>()?;
    let cause = io::Error::from_raw_os_error(cause.raw_os_error()?);
    let described = leasehold::Error::exhausted(cause, error);
    described.hint().is_some().then_some(described)
}

/// Prints one line on standard error.
pub(crate) fn print_error(line: impl std::fmt::Display) {
    // Standard error may be closed. That must not cost the lock, so the failure is ignored.
    let _ = StandardError.write_all(format!("leasehold: {line}\n").as_bytes());
}

/// Returns whether standard error takes bytes within this time.
///
/// A pipe whose reader is stuck takes none, and neither does a terminal after Ctrl-S.
pub(crate) fn is_stderr_writable(within: Duration) -> bool {
    let deadline = Instant::now() + within;
    let stderr = io::stderr();
    let mut descriptors = [PollFd::new(&stderr, PollFlags::OUT)];

    loop {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .try_into()
            .expect("the time is short");
        match poll(&mut descriptors, Some(&left)) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Standard error, which drops the text that it does not take soon.
///
/// A write that blocks would stop the renewals, and the supervision of COMMAND. Other processes
/// share the file description, so `O_NONBLOCK` must not be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// A pipe that is writable takes this many bytes without blocking: `PIPE_BUF`.
        const PIPE_BUF: usize = 4096;
        const WRITABLE_MAX: Duration = Duration::from_millis(100);

        if !is_stderr_writable(WRITABLE_MAX) {
            return Ok(bytes.len());
        }
        io::stderr().write(&bytes[..bytes.len().min(PIPE_BUF)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::Error;

    #[test]
    fn every_error_kind_has_an_exit_code() {
        let cases = [
            (Error::invalid(""), Exit::USAGE),
            (Error::mismatch(""), Exit::USAGE),
            (Error::unsupported(""), Exit::USAGE),
            (Error::unavailable(""), Exit::UNAVAILABLE),
            (Error::damaged(""), Exit::INTERNAL),
            (Error::lost(""), Exit::LOST),
            (Error::denied(""), Exit::DENIED),
        ];
        for (error, exit) in cases {
            assert_eq!(Exit::by_error(&error.clone().into()), exit, "{error:?}");
        }
        assert_eq!(
            Exit::by_error(&anyhow::anyhow!("anything else")),
            Exit::INTERNAL
        );
        assert_eq!(
            ExitCode::from(Exit::by_signal(Signal::SIGTERM)),
            ExitCode::from(143)
        );
    }
}
