//! Who may read from the terminal: leasehold's process group or the command's.

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
}

impl Terminal {
    /// The one this process belongs to, whatever standard input is.
    pub(crate) fn controlling() -> Option<Self> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Self { tty })
    }

    /// Whether our process group is in its foreground.
    pub(crate) fn is_own(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    /// Whether it is ours and no pipe leads to a program that might need it as well, such as a pager.
    pub(crate) fn is_foreground(&self) -> bool {
        stdin().is_terminal() && stdout().is_terminal() && self.is_own()
    }

    /// Puts a process group into the foreground.
    pub(crate) fn hand_to(&self, group: Pid) {
        // Asked from the background this would stop us, unless the signal is blocked.
        let stops = SigSet::from_iter([Signal::SIGTTOU]);
        let blocked = stops.thread_block();
        if let Err(error) = tcsetpgrp(&self.tty, group) {
            tracing::debug!(%group, %error, "the terminal was not handed over");
        }
        if blocked.is_ok() {
            // It was possible to block, so it is to unblock.
            let _ = stops.thread_unblock();
        }
    }

    /// Takes it back from a process group, if that still has it.
    pub(crate) fn take_back(&self, group: Pid) {
        if tcgetpgrp(&self.tty) == Ok(group) {
            self.hand_to(getpgrp());
        }
    }
}

/// Whether there is a shell that could make us go on if we stopped. The first process group of a session has none.
pub(crate) fn has_job_control() -> bool {
    getsid(None) != Ok(getpgrp())
}
