//! Supervises the command from its start to its end.

use std::future::pending;
use std::io;
use std::time::Duration;

use leasehold::Guard;
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep, sleep_until};

use super::child::{Change, Child};
use super::signals::Signals;
use super::stopping::Stopping;
use super::terminal::{Terminal, has_job_control};
use crate::commands::OnLost;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, whole_unit};

/// How long to wait for processes after KILL. A process that waits for a dead disk cannot end.
const KILLED_MAX: Duration = Duration::from_secs(10);

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// The lock was lost, or the command was stopped just before the loss.
    pub(crate) stopped: bool,
}

/// Forwards signals, manages the terminal, and stops the command before the lock can be lost.
pub(crate) struct Supervision<'a> {
    pub(crate) child: &'a mut Child,
    pub(crate) guard: &'a Guard,
    pub(crate) signals: &'a mut Signals,
    pub(crate) stopping: &'a Stopping,
    /// The store's URL without its password.
    pub(crate) store: &'a str,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) stage: Stage,
}

/// How far the command has been stopped.
///
/// ```text
/// Held ── the end is near ──► Terminating ── the grace is over ──► Killed
///   ├────── --on-lost kill ──────────────────────────────────────────▲
///   └────── --on-lost ignore ──► Ignored
/// ```
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    Held,
    Terminating { kill_at: Instant },
    Killed,
    Ignored,
}

impl Supervision<'_> {
    pub(crate) async fn run(mut self) -> io::Result<Ended> {
        let exit = loop {
            tokio::select! {
                change = self.child.changed() => match change? {
                    Change::Ended(exit) => break exit,
                    Change::Stopped(by) => self.child_stopped(by)?,
                },
                signal = self.signals.next() => self.forward(signal)?,
                () = self.stage.is_over(self.guard, self.stopping) => self.next_stage(),
            }
        };

        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.child.group());
        }
        self.stop_the_rest().await;

        Ok(Ended {
            exit,
            stopped: !matches!(self.stage, Stage::Held),
        })
    }

    fn next_stage(&mut self) {
        self.stage = match (self.stage, self.stopping.on_lost) {
            (Stage::Held, OnLost::Term) => self.terminate(),
            (Stage::Held, OnLost::Ignore) => self.ignore(),
            (Stage::Held, OnLost::Kill) => self.kill("; sending KILL to the command"),
            (Stage::Terminating { .. } | Stage::Killed | Stage::Ignored, _) => {
                self.child_outlived_grace()
            }
        };
    }

    fn terminate(&self) -> Stage {
        let grace = self.stopping.kill_after(self.guard);
        self.print_lost(&format!(
            "; sending TERM to the command, and KILL in {}",
            whole_unit(grace)
        ));

        self.child.signal(Signal::SIGTERM);
        // A stopped process handles TERM only after it is continued.
        self.child.signal(Signal::SIGCONT);
        Stage::Terminating {
            kill_at: Instant::now() + grace,
        }
    }

    fn ignore(&self) -> Stage {
        self.print_lost("; the command runs on without the lock");
        Stage::Ignored
    }

    fn kill(&self, action: &str) -> Stage {
        self.print_lost(action);
        self.child.signal(Signal::SIGKILL);
        Stage::Killed
    }

    fn child_outlived_grace(&self) -> Stage {
        print_error("the command has not ended within the grace; sending KILL");
        self.child.signal(Signal::SIGKILL);
        Stage::Killed
    }

    fn print_lost(&self, action: &str) {
        let name = Escaped(self.guard.name());
        match self.guard.loss() {
            Some(loss) => print_error(format_args!("lost {name}: {loss}{action}")),
            None => print_error(format_args!(
                "losing {name}: {}{action}",
                self.stopping.cause(self.guard, self.store)
            )),
        }
    }

    /// Stops the descendants of the command. They may outlive the command, but not its grace.
    ///
    /// The lock is released after the whole group has ended. A process that was sent KILL may still
    /// write until then.
    async fn stop_the_rest(&mut self) {
        match self.stage {
            Stage::Held | Stage::Ignored => return,
            Stage::Terminating { kill_at } if self.group_ends_by(kill_at).await => return,
            Stage::Terminating { .. } => {
                self.child.signal(Signal::SIGKILL);
            }
            Stage::Killed => {}
        }

        if !self.group_ends_by(Instant::now() + KILLED_MAX).await {
            print_error("processes of the command still run after KILL; releasing the lock anyway");
        }
    }

    /// Waits until no process of the group runs. Returns `false` if the deadline passes first.
    async fn group_ends_by(&self, deadline: Instant) -> bool {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);

        while self.child.group_is_running() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
        true
    }

    fn forward(&mut self, signal: Signal) -> io::Result<()> {
        self.child.signal(signal);
        if signal == Signal::SIGTSTP {
            // The stop signal was meant for leasehold and the command, and so will be SIGCONT.
            raise(Signal::SIGSTOP)?;
            self.resume();
        }
        Ok(())
    }

    /// Does job control between the shell and the command.
    ///
    /// The shell controls leasehold's process group, and leasehold controls the command's.
    fn child_stopped(&mut self, by: Signal) -> io::Result<()> {
        let Some(terminal) = &self.terminal else {
            return Ok(());
        };

        if matches!(by, Signal::SIGTTIN | Signal::SIGTTOU) && terminal.is_own() {
            // The command needs the terminal, and leasehold can give it.
            self.resume();
            return Ok(());
        }

        terminal.take_back(self.child.group());
        if has_job_control() {
            // Stops the whole job: the script or the pipeline that leasehold is part of, too.
            kill(Pid::from_raw(0), Signal::SIGSTOP)?;
            self.resume();
        } else if by != Signal::SIGSTOP {
            // Without job control, no shell could continue the command.
            self.resume();
        }
        Ok(())
    }

    /// Continues the command, unless the lock was lost while the command was stopped.
    fn resume(&self) {
        if self.guard.check().is_err() && self.stopping.on_lost != OnLost::Ignore {
            return;
        }

        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_own()) {
            terminal.hand_to(self.child.group());
        }
        self.child.signal(Signal::SIGCONT);
    }
}

impl Stage {
    /// Waits until the next stage begins.
    async fn is_over(self, guard: &Guard, stopping: &Stopping) {
        match self {
            Self::Held => guard.until_remaining(stopping.stop_margin()).await,
            Self::Terminating { kill_at } => sleep_until(kill_at).await,
            Self::Killed | Self::Ignored => pending().await,
        }
    }
}
