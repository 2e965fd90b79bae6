//! The terminal, from which only one process group may read: leasehold's or the command's.

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
}

impl Terminal {
    /// Opens the controlling terminal of this process. Standard input may be something else.
    pub(crate) fn controlling() -> Option<Self> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Self { tty })
    }

    /// Returns whether leasehold's process group is the terminal's foreground group.
    pub(crate) fn is_own(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    /// Returns whether the command may get the terminal from its start.
    ///
    /// leasehold must be in the foreground. A pipe must not lead to a program that may need the
    /// terminal too, such as a pager.
    pub(crate) fn is_foreground(&self) -> bool {
        stdin().is_terminal() && stdout().is_terminal() && self.is_own()
    }

    /// Puts a process group into the foreground.
    pub(crate) fn hand_to(&self, group: Pid) {
        // From the background, tcsetpgrp stops the caller with SIGTTOU, unless that is blocked.
        let stops = SigSet::from_iter([Signal::SIGTTOU]);
        let blocked = stops.thread_block();

        if let Err(error) = tcsetpgrp(&self.tty, group) {
            tracing::debug!(%group, %error, "the terminal was not handed over");
        }

        if blocked.is_ok() {
            // Unblocking cannot fail with arguments that blocking has accepted.
            let _ = stops.thread_unblock();
        }
    }

    /// Takes the terminal back from a process group that still has it.
    pub(crate) fn take_back(&self, group: Pid) {
        if tcgetpgrp(&self.tty) == Ok(group) {
            self.hand_to(getpgrp());
        }
    }
}

/// Returns whether a shell could continue leasehold after a stop.
///
/// The first process group of a session has no such shell.
pub(crate) fn has_job_control() -> bool {
    getsid(None) != Ok(getpgrp())
}
