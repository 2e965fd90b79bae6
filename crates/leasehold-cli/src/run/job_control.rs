//! Job control between the shell and the command.
//!
//! The shell controls leasehold's process group, and leasehold controls the command's. Only one of
//! them may have the terminal.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::signals::{Reach, Signals};
use super::terminal::{Terminal, has_job_control};
use crate::exit::print_error;

/// The terminal, if there is one, and whether the command needs it.
#[derive(Debug)]
pub(crate) struct JobControl {
    terminal: Option<Terminal>,
    need: Need,
}

/// Whether a command gets the terminal at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// It does if allowed, so that a program finds the terminal as in a shell.
    Given,
    /// It gets it when it reads from it. The keyboard's signals reach leasehold until then, which
    /// has to know that somebody has asked a command to end that handles them and exits with 0.
    Kept,
}

/// Whether the command needs the terminal.
///
/// ```text
/// Unused ──── stopped for its use (TTIN, TTOU) ──► Blocked ── it may have it ──► Used
/// Used ────── stopped for its use, in the background ──► Blocked
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// It runs without the terminal. The keyboard's signals go to leasehold's group.
    Unused,
    /// It has the terminal whenever leasehold's group would have it.
    Used,
    /// It is stopped until it gets the terminal.
    Blocked,
}

impl JobControl {
    /// Returns the job control of a command.
    pub(crate) fn new(at_start: AtStart) -> Self {
        let terminal = Terminal::controlling();
        let is_given = at_start == AtStart::Given
            && terminal
                .as_ref()
                .is_some_and(Terminal::can_be_given_at_start);
        let need = if is_given { Need::Used } else { Need::Unused };
        Self { terminal, need }
    }

    /// Returns whether the command begins with the terminal.
    pub(crate) fn is_given(&self) -> bool {
        self.need == Need::Used
    }

    /// Handles a stop of the command. Returns whether the command may continue.
    ///
    /// leasehold's own group is stopped meanwhile, where a shell can continue it.
    pub(crate) fn stopped(
        &mut self,
        by: Signal,
        group: Pid,
        signals: &Signals,
    ) -> io::Result<bool> {
        let Some(terminal) = &self.terminal else {
            return Ok(false);
        };

        let needs_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if needs_terminal {
            self.block();
            return self.unblock(group, signals);
        }

        terminal.take_back(group);
        if has_job_control() {
            signals.stop(Signal::SIGTSTP, Reach::Job)?;
            Ok(self.give_if_used(group))
        } else {
            // Without job control, no shell could continue the command.
            Ok(by != Signal::SIGSTOP && self.give_if_used(group))
        }
    }

    /// Waits until the next attempt to continue a command that is stopped because it lacks the
    /// terminal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub(crate) async fn retry(&self) {
        const INTERVAL: Duration = Duration::from_millis(200);

        match self.need {
            Need::Blocked => tokio::time::sleep(INTERVAL).await,
            Need::Unused | Need::Used => std::future::pending().await,
        }
    }

    /// Gives the terminal to a command that is stopped because it lacks the terminal. Returns
    /// whether the command may continue.
    pub(crate) fn unblock(&mut self, group: Pid, signals: &Signals) -> io::Result<bool> {
        let Some(terminal) = &self.terminal else {
            return Ok(true);
        };

        if terminal.belongs_to(group) {
            self.need = Need::Used;
            return Ok(true);
        }
        if !terminal.is_own() && !terminal.is_lent() && has_job_control() {
            // The job is in the background. It stops as any job does that uses the terminal there.
            signals.stop(signals.for_use_of_terminal(), Reach::Job)?;
        }
        Ok(self.give_if_allowed(group))
    }

    /// Prepares the command to continue after leasehold was stopped and continued.
    pub(crate) fn resumed(&mut self, group: Pid) -> bool {
        match self.need {
            Need::Blocked => self.give_if_allowed(group),
            Need::Unused | Need::Used => self.give_if_used(group),
        }
    }

    /// Takes the terminal back after the command has ended. Returns whether the command had it.
    pub(crate) fn take_back(&mut self, group: Pid) -> bool {
        self.need = Need::Unused;
        let Some(terminal) = &self.terminal else {
            return false;
        };

        let had_it = terminal.belongs_to(group);
        terminal.take_back(group);
        had_it
    }

    fn block(&mut self) {
        let is_refused = self
            .terminal
            .as_ref()
            .is_some_and(|terminal| terminal.is_own() && !terminal.can_be_given());
        if is_refused && self.need != Need::Blocked {
            print_error(
                "the command is stopped: it needs the terminal, from which another process of \
                 this job may read",
            );
        }
        self.need = Need::Blocked;
    }

    /// Gives the terminal to a command that has used it. If this fails, the command continues
    /// without it.
    fn give_if_used(&mut self, group: Pid) -> bool {
        if self.need == Need::Used {
            self.give_if_allowed(group);
        }
        true
    }

    fn give_if_allowed(&mut self, group: Pid) -> bool {
        let terminal = self.terminal.as_ref();
        let Some(terminal) = terminal.filter(|terminal| terminal.can_be_given()) else {
            return false;
        };

        terminal.hand_to(group);
        self.need = Need::Used;
        true
    }
}
