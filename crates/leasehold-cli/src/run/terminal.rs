//! The terminal, from which only one process group may read: leasehold's or the command's.

use std::fs::File;
use std::io::{self, IsTerminal, stdin, stdout};
use std::path::Path;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, getpid, getsid, tcgetpgrp, tcsetpgrp};

use super::process_table::{Process, ProcessTable};
use crate::own_program::is_watchdog;

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
        self.belongs_to(getpgrp())
    }

    /// Returns whether the command may get the terminal from its start.
    ///
    /// leasehold must be in the foreground, and its process group must have no member but leasehold
    /// and the programs that wait for it, such as a script. Any other member may need the terminal,
    /// or the keyboard's signals: a pager, another job of `make -j`, a process in the background.
    pub(crate) fn can_be_given_at_start(&self) -> bool {
        let is_alone = || other_members().is_ok_and(|others| others.is_empty());

        stdin().is_terminal()
            && stdout().is_terminal()
            && self.is_own()
            && !is_parallel_make()
            && is_alone()
    }

    /// Returns whether the command may get the terminal after it was stopped because it lacked it.
    ///
    /// leasehold must be in the foreground, and no other member of its process group may read from
    /// the terminal.
    pub(crate) fn can_be_given(&self) -> bool {
        let has_reader = |others: Vec<Process>| others.iter().any(reads_terminal);
        self.is_own() && other_members().is_ok_and(|others| !has_reader(others))
    }

    /// Returns whether another leasehold of this process group has given the terminal away.
    pub(crate) fn is_lent(&self) -> bool {
        let parent = tcgetpgrp(&self.tty)
            .ok()
            .and_then(|group| Process::find(group.as_raw()))
            .and_then(|leader| Process::find(leader.parent));
        let lender = parent.and_then(|parent| {
            if is_watchdog(parent.pid) {
                Process::find(parent.parent)
            } else {
                Some(parent)
            }
        });
        lender.is_some_and(|lender| lender.group == getpgrp().as_raw())
    }

    /// Returns whether a process group is the terminal's foreground group.
    pub(crate) fn belongs_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
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
        if self.belongs_to(group) {
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

/// Returns the members of leasehold's process group except leasehold and its ancestors.
fn other_members() -> io::Result<Vec<Process>> {
    let table = ProcessTable::read()?;
    let waiting = table.with_ancestors(getpid().as_raw());

    let members = table.group(getpgrp().as_raw());
    Ok(members
        .filter(|process| !waiting.contains(&process.pid))
        .cloned()
        .collect())
}

/// Returns whether `make -j` or a similar tool runs leasehold. Such a tool may start other
/// processes at any time.
fn is_parallel_make() -> bool {
    std::env::var("MAKEFLAGS").is_ok_and(|flags| flags.contains("--jobserver"))
}

/// Returns whether a process has the terminal as its standard input or has opened it.
///
/// Only readers matter: many programs write to the terminal, and any process group may do that.
/// leasehold itself does not read from it.
fn reads_terminal(process: &Process) -> bool {
    let folder = format!("/proc/{}", process.pid);
    let program = std::fs::read_link(format!("{folder}/exe"));
    if program.is_ok_and(|program| std::env::current_exe().is_ok_and(|own| own == program)) {
        return false;
    }

    // The descriptors of another user's process cannot be read.
    let Ok(descriptors) = std::fs::read_dir(format!("{folder}/fd")) else {
        return true;
    };
    descriptors
        .flatten()
        .filter(|entry| !["1", "2"].iter().any(|number| entry.file_name() == *number))
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|file| is_terminal(&file))
}

fn is_terminal(file: &Path) -> bool {
    let name = file.to_string_lossy();
    ["/dev/tty", "/dev/pts/", "/dev/console"]
        .iter()
        .any(|device| name.starts_with(device))
}
