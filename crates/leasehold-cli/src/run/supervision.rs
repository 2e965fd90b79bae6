//! Supervises the command from its start to its end.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::child::{Change, Child, watchdog_ended};
use super::job_control::JobControl;
use super::signals::{Reach, Signals, end_by_real_time};
use super::stopping::{KILLED_MAX, Stopping};
use super::watchdog::Watchdog;
use crate::commands::OnLost;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, whole_unit};
use crate::guards::Guards;

/// How long KILL is repeated before it is reported and the end of the command is awaited.
const KILL_FIRST: Duration = Duration::from_secs(1);

/// How the command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// Whether the lock was lost, or the command was stopped just before the loss.
    pub(crate) stopped: bool,
    /// Whether the keyboard sent the signal that ended the command. Only the command's group
    /// received such a signal.
    pub(crate) from_keyboard: bool,
    /// Whether a signal has requested the end of the command and of leasehold.
    pub(crate) end_requested: bool,
}

/// Forwards signals, manages the terminal, and stops the command before the lock can be lost.
pub(crate) struct Supervision<'a> {
    pub(crate) child: &'a mut Child,
    pub(crate) guard: &'a Guards,
    pub(crate) signals: &'a mut Signals,
    pub(crate) stopping: &'a Stopping,
    /// The store's URL without its password.
    pub(crate) store: &'a str,
    pub(crate) jobs: JobControl,
    /// Whether the hold lasts until all descendants of the command have ended.
    pub(crate) until_all_end: bool,
    pub(crate) stage: Stage,
    /// The signals that leasehold has forwarded to the command.
    pub(crate) forwarded: Vec<Signal>,
}

/// The progress of stopping the command.
///
/// ```text
/// Held ── the end is near ──► Terminating ── --kill-after is over ──► Killed
///   ├────── --on-lost kill ──────────────────────────────────────────▲
///   ├────── --on-lost ignore ──► Ignored
///   └────── the watchdog has ended ──► Unguarded
/// ```
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    Held,
    Terminating {
        kill_at: Instant,
    },
    Killed,
    Ignored,
    /// The command was killed although it holds the lock: nothing would stop it after a SIGKILL of
    /// leasehold.
    Unguarded,
}

impl Supervision<'_> {
    /// Returns when the command has ended, and after a loss all of its descendants; `None` if the
    /// hold has ended before some of them.
    pub(crate) async fn run(mut self) -> io::Result<Option<Ended>> {
        let mut exit = self.command_ended().await?;
        let had_terminal = self.jobs.take_back(self.child.group());

        if self.until_all_end {
            self.descendants_ended().await?;
        }
        if let Some(watchdog) = self.child.watchdog().filter(|watchdog| watchdog.acts()) {
            self.stage = Stage::Killed;
            watchdog.printed().await;
        }
        if matches!(self.stage, Stage::Unguarded) {
            exit = Exit::by_signal(Signal::SIGKILL);
        }
        if !self.stop_the_rest().await? {
            return Ok(None);
        }

        let from_keyboard = had_terminal && self.is_from_keyboard(exit);
        Ok(Some(Ended {
            exit,
            stopped: !matches!(self.stage, Stage::Held | Stage::Unguarded),
            from_keyboard,
            end_requested: from_keyboard || self.forwarded.iter().any(|signal| ends(*signal)),
        }))
    }

    async fn command_ended(&mut self) -> io::Result<Exit> {
        loop {
            if let Change::Ended(exit) = self.changed().await? {
                return Ok(exit);
            }
        }
    }

    async fn descendants_ended(&mut self) -> io::Result<()> {
        while !matches!(self.changed().await?, Change::AllEnded) {}
        Ok(())
    }

    /// Waits for a change of the command, and handles everything else meanwhile.
    async fn changed(&mut self) -> io::Result<Change> {
        loop {
            let watchdog = self.child.watchdog();
            tokio::select! {
                change = self.child.changed() => match change? {
                    Change::Stopped(by) => self.child_stopped(by)?,
                    Change::WatchdogEnded(by) => self.kill_unguarded(by),
                    change => return Ok(change),
                },
                signal = self.signals.next() => self.forward(signal)?,
                () = self.stage.is_over(self.guard, self.stopping) => self.next_stage(),
                // The command is stopped because it lacks the terminal, and may get it now.
                () = self.jobs.retry() => self.retry_for_terminal()?,
                never = self.stage.follow(watchdog.as_deref(), self.guard, self.stopping) => {
                    match never {}
                }
            }
        }
    }

    /// Kills the command after the end of the watchdog. The kernel has killed its
    /// first process already.
    fn kill_unguarded(&mut self, by: Option<i32>) {
        self.child.kill_all(KILL_FIRST);
        end_by_real_time(by);

        let ended = watchdog_ended(by);
        print_error(format_args!("{ended}; sending KILL to the command"));
        if matches!(self.stage, Stage::Held) {
            self.stage = Stage::Unguarded;
        }
    }

    /// Returns whether the keyboard has sent the signal that ended the command.
    ///
    /// The keyboard's signal reaches only the command's group. A signal that leasehold has
    /// forwarded was sent to leasehold itself.
    fn is_from_keyboard(&self, exit: Exit) -> bool {
        [Signal::SIGINT, Signal::SIGQUIT]
            .into_iter()
            .any(|signal| exit == Exit::by_signal(signal) && !self.forwarded.contains(&signal))
    }

    fn next_stage(&mut self) {
        self.stage = match (self.stage, self.stopping.on_lost) {
            (Stage::Held, OnLost::Term) => self.terminate(),
            (Stage::Held, OnLost::Ignore) => self.ignore(),
            (Stage::Held, OnLost::Kill) => self.kill("; sending KILL to the command"),
            _ => self.child_outlived_term(),
        };
    }

    fn terminate(&self) -> Stage {
        let time = self.stopping.time_to_kill(self.guard);
        let kill_at = Instant::now() + time;
        // Standard error may be slow, so the signals go first.
        self.child.signal_all(Signal::SIGTERM);
        // A stopped process handles TERM only after it is continued.
        self.child.signal_all(Signal::SIGCONT);

        self.print_lost(&format!(
            "; sending TERM to the command, and KILL in {}",
            whole_unit(time)
        ));
        Stage::Terminating { kill_at }
    }

    fn ignore(&self) -> Stage {
        self.print_lost("; the command runs on without the lock");
        Stage::Ignored
    }

    fn kill(&self, action: &str) -> Stage {
        self.child.kill_all(KILL_FIRST);
        self.print_lost(action);
        Stage::Killed
    }

    fn child_outlived_term(&self) -> Stage {
        self.child.kill_all(KILL_FIRST);
        print_error("the command has not ended after TERM; sending KILL");
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

    /// Stops the descendants of the command. They may outlive the command, but not the time of
    /// KILL.
    ///
    /// The lock is released after all of them have ended, including those in other sessions. A
    /// process that was sent KILL may still write until then. One that waits for a dead disk, or
    /// belongs to another user, does not end. leasehold keeps the lock beside it as long as it can.
    /// Returns `false` if the hold has ended before.
    async fn stop_the_rest(&mut self) -> io::Result<bool> {
        match self.stage {
            Stage::Held | Stage::Ignored => return Ok(true),
            Stage::Terminating { kill_at } => {
                if self.all_end_by(kill_at).await? {
                    return Ok(true);
                }
            }
            Stage::Killed | Stage::Unguarded => {}
        }

        let mut is_reported = false;
        loop {
            let deadline = Instant::now() + KILLED_MAX;
            self.child.kill_all(KILLED_MAX);
            if self.all_end_by(deadline).await? {
                return Ok(true);
            }

            let left = still_run(&self.child.left_over());
            if self.guard.check().is_err() {
                print_error(format_args!(
                    "{left}; the lock is lost, and another client may hold it beside them"
                ));
                return Ok(false);
            }
            if !is_reported {
                print_error(format_args!("{left}; the lock stays held while they run"));
                is_reported = true;
            }
        }
    }

    /// Waits until all descendants have ended. Returns `false` if the deadline passes first.
    async fn all_end_by(&mut self, deadline: Instant) -> io::Result<bool> {
        let all_ended = async {
            // If the watchdog ends meanwhile, leasehold is the parent of those that still run.
            while !matches!(self.child.changed().await?, Change::AllEnded) {}
            Ok(true)
        };
        timeout_at(deadline, all_ended).await.unwrap_or(Ok(false))
    }

    fn forward(&mut self, signal: Signal) -> io::Result<()> {
        self.child.signal(signal);
        self.forwarded.push(signal);
        self.report_descendants();

        if signal == Signal::SIGTSTP {
            // The stop signal was meant for leasehold and the command, and so will be SIGCONT.
            self.signals.stop(signal, Reach::Own)?;
            let may_run = self.jobs.resumed(self.child.group());
            self.resume_if(may_run);
        }
        Ok(())
    }

    /// Prints which processes leasehold still waits for. A user who sends a signal after the end of
    /// the command may not know why leasehold runs on.
    fn report_descendants(&self) {
        let left = self.child.left_over();
        if !left.is_empty() {
            print_error(format_args!(
                "the command has ended; --until-all-end waits for its processes {}",
                list(&left)
            ));
        }
    }

    fn child_stopped(&mut self, by: Signal) -> io::Result<()> {
        let may_run = self.jobs.stopped(by, self.child.group(), self.signals)?;
        self.resume_if(may_run);
        Ok(())
    }

    fn retry_for_terminal(&mut self) -> io::Result<()> {
        let may_run = self.jobs.unblock(self.child.group(), self.signals)?;
        self.resume_if(may_run);
        Ok(())
    }

    /// Continues the command, unless the lock was lost while the command was stopped.
    fn resume_if(&self, may_run: bool) {
        let is_lost = self.guard.check().is_err() && self.stopping.on_lost != OnLost::Ignore;
        if may_run && !is_lost {
            self.child.signal(Signal::SIGCONT);
        }
    }
}

/// The beginning of a message about processes that KILL does not end. No process is given if `/proc`
/// shows none.
pub(super) fn still_run(pids: &[i32]) -> String {
    let text = "processes of the command still run after KILL";
    if pids.is_empty() {
        text.to_owned()
    } else {
        format!("{text}: {}", list(pids))
    }
}

fn list(pids: &[i32]) -> String {
    let pids: Vec<_> = pids.iter().map(i32::to_string).collect();
    pids.join(", ")
}

/// Whether a signal requests an end. Programs use USR1 and USR2 for other requests.
fn ends(signal: Signal) -> bool {
    let others = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTSTP];
    !others.contains(&signal)
}

impl Stage {
    /// Waits until the next stage begins.
    async fn is_over(self, guard: &Guards, stopping: &Stopping) {
        match self {
            Self::Held => guard.until_remaining(stopping.stop_margin()).await,
            Self::Terminating { kill_at } => sleep_until(kill_at).await,
            Self::Killed | Self::Ignored | Self::Unguarded => pending().await,
        }
    }

    /// Sends the watchdog the time until which the command may run.
    async fn follow(
        self,
        watchdog: Option<&Watchdog>,
        guard: &Guards,
        stopping: &Stopping,
    ) -> Infallible {
        let Some(watchdog) = watchdog else {
            return pending().await;
        };

        let margin = stopping.margin;
        match self {
            Self::Held => watchdog.follow(|| stopping.unattended(guard)).await,
            Self::Terminating { kill_at } => {
                let until_kill = || kill_at.saturating_duration_since(Instant::now());
                watchdog.follow(|| until_kill() + margin / 2).await
            }
            Self::Killed | Self::Ignored | Self::Unguarded => pending().await,
        }
    }
}
