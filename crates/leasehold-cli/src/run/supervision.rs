//! From the command's start to its end.

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

/// How long to wait for processes that were sent KILL: one that waits for a dead disk cannot end.
const KILLED_MAX: Duration = Duration::from_secs(10);

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// The lock was lost, or would have been had the command not been stopped.
    pub(crate) stopped: bool,
}

/// Passes signals on, minds the terminal, and stops the command in time when the lock is about to be lost.
pub(crate) async fn supervise(
    child: &mut Child,
    guard: &Guard,
    signals: &mut Signals,
    stopping: &Stopping,
    store: &str,
    terminal: Option<Terminal>,
) -> io::Result<Ended> {
    Supervision {
        child,
        guard,
        signals,
        stopping,
        store,
        terminal,
        stage: Stage::Held,
    }
    .run()
    .await
}

struct Supervision<'a> {
    child: &'a mut Child,
    guard: &'a Guard,
    signals: &'a mut Signals,
    stopping: &'a Stopping,
    /// The store's URL without its password.
    store: &'a str,
    terminal: Option<Terminal>,
    stage: Stage,
}

/// ```text
/// Held ── the end is near ──► Terminating ── the grace is over ──► Killed
///   ├────── --on-lost kill ──────────────────────────────────────────▲
///   └────── --on-lost ignore ──► Ignored
/// ```
#[derive(Clone, Copy)]
enum Stage {
    Held,
    Terminating { kill_at: Instant },
    Killed,
    Ignored,
}

impl Supervision<'_> {
    async fn run(mut self) -> io::Result<Ended> {
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
        // A stopped process hears TERM only when it goes on.
        self.child.signal(Signal::SIGCONT);
        Stage::Terminating {
            kill_at: Instant::now() + grace,
        }
    }

    fn ignore(&self) -> Stage {
        self.print_lost("; the command runs on without the lock");
        Stage::Ignored
    }

    fn kill(&self, how: &str) -> Stage {
        self.print_lost(how);
        self.child.signal(Signal::SIGKILL);
        Stage::Killed
    }

    fn child_outlived_grace(&self) -> Stage {
        print_error("the command has not ended; sending KILL");
        self.child.signal(Signal::SIGKILL);
        Stage::Killed
    }

    fn print_lost(&self, and: &str) {
        let name = Escaped(self.guard.name());
        match self.guard.loss() {
            Some(loss) => print_error(format_args!("lost {name}: {loss}{and}")),
            None => print_error(format_args!(
                "losing {name}: {}{and}",
                self.stopping.cause(self.guard, self.store)
            )),
        }
    }

    /// What the command started may outlive it, but not its grace. The lock is released when the whole group is gone:
    /// a process that was sent KILL may still write until then.
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
            print_error("processes of the command have not ended, although they were sent KILL");
        }
    }

    /// Waits until no process of the group runs; says whether that was so in time.
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
            // Whoever stopped us meant us and our command, and will want both to go on.
            raise(Signal::SIGSTOP)?;
            self.resume();
        }
        Ok(())
    }

    /// Job control: whoever sits at the terminal deals with us, and we with the command.
    fn child_stopped(&mut self, by: Signal) -> io::Result<()> {
        let Some(terminal) = &self.terminal else {
            return Ok(());
        };
        if matches!(by, Signal::SIGTTIN | Signal::SIGTTOU) && terminal.is_own() {
            // It wants the terminal, and we can give it.
            self.resume();
            return Ok(());
        }
        terminal.take_back(self.child.group());
        if has_job_control() {
            // The whole job stops, with a script or a pipeline that we are part of.
            kill(Pid::from_raw(0), Signal::SIGSTOP)?;
            self.resume();
        } else if by != Signal::SIGSTOP {
            // Nobody could make it go on again.
            self.resume();
        }
        Ok(())
    }

    /// Lets the command go on, unless the lock was lost while it was stopped.
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
    /// When this stage gives way to the next.
    async fn is_over(self, guard: &Guard, stopping: &Stopping) {
        match self {
            Self::Held => guard.until_remaining(stopping.stop_margin()).await,
            Self::Terminating { kill_at } => sleep_until(kill_at).await,
            Self::Killed | Self::Ignored => pending().await,
        }
    }
}
