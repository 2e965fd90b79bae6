//! Supervises the command from its start to its end.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::time::Duration;

use leasehold::{LossReason, MultiGuard, folder_of};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use super::child::{Change, Child, watchdog_ended};
use super::job_control::JobControl;
use super::signals::{Reach, Signals, end_by_real_time, requests_end};
use super::stopping::{KILLED_MAX, Stopping, list, still_run};
use super::watchdog::Watchdog;
use crate::commands::OnLost;
use crate::exit::{Exit, print_error};
use crate::format::{Escaped, whole_unit};

/// How long one round of KILL takes at most. leasehold receives no signals meanwhile.
pub(super) const KILL_FIRST: Duration = Duration::from_secs(1);
/// The time between two rounds of KILL, in which leasehold receives signals.
const KILL_PAUSE: Duration = Duration::from_secs(1);

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
    pub(crate) guard: &'a MultiGuard,
    pub(crate) signals: &'a mut Signals,
    pub(crate) stopping: &'a Stopping,
    pub(crate) jobs: JobControl,
    /// Whether the hold lasts until all descendants of the command have ended.
    pub(crate) until_all_end: bool,
    pub(crate) stage: Stage,
    /// When the processes that still run are reported, once KILL was sent.
    pub(crate) report_at: Option<Instant>,
    pub(crate) survivors: Survivors,
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
    /// KILL is repeated until all processes have ended.
    Killed {
        again_at: Instant,
    },
    Ignored,
    /// The command was killed although it holds the lock: nothing would stop it after a SIGKILL of
    /// leasehold.
    Unguarded {
        again_at: Instant,
    },
}

/// What becomes of processes that KILL does not end.
///
/// ```text
/// Unreported ── KILLED_MAX ──► Reported ── signal ──► Asked ── signal ──► Left
///                                 └────── the hold is lost ────────────────▲
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    Unreported,
    Reported,
    /// A signal has requested the end of leasehold. The next one ends it.
    Asked,
    /// leasehold ends beside them, and does not release the lock.
    Left,
}

impl Supervision<'_> {
    /// Returns when the command has ended, and after a loss all of its descendants; `None` if some
    /// of them are left.
    pub(crate) async fn run(mut self) -> io::Result<Option<Ended>> {
        let exit = self.command_ended().await?;
        let had_terminal = self.jobs.take_back(self.child.group());
        let Some(mut exit) = exit else {
            return Ok(None);
        };

        if self.until_all_end && !self.all_ended().await? {
            return Ok(None);
        }
        if let Some(watchdog) = self.child.watchdog().filter(|watchdog| watchdog.acts()) {
            let again_at = Instant::now();
            self.stage = Stage::Killed { again_at };
            watchdog.printed().await;
        }
        if matches!(self.stage, Stage::Unguarded { .. }) {
            exit = Exit::by_signal(Signal::SIGKILL);
        }
        if !self.stop_the_rest().await? {
            return Ok(None);
        }

        let from_keyboard = had_terminal && self.is_from_keyboard(exit);
        Ok(Some(Ended {
            exit,
            stopped: !matches!(self.stage, Stage::Held | Stage::Unguarded { .. }),
            from_keyboard,
            end_requested: from_keyboard || self.forwarded.iter().copied().any(requests_end),
        }))
    }

    async fn command_ended(&mut self) -> io::Result<Option<Exit>> {
        while let Some(change) = self.changed().await? {
            if let Change::Ended(exit) = change {
                return Ok(Some(exit));
            }
        }
        Ok(None)
    }

    /// Waits until all descendants have ended. Returns `false` if some are left.
    async fn all_ended(&mut self) -> io::Result<bool> {
        while let Some(change) = self.changed().await? {
            if matches!(change, Change::AllEnded) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for a change of the command, and handles everything else meanwhile. Returns `None` if
    /// leasehold is to end beside processes that KILL does not end.
    async fn changed(&mut self) -> io::Result<Option<Change>> {
        while self.survivors != Survivors::Left {
            let watchdog = self.child.watchdog();
            tokio::select! {
                biased;
                // A signal that arrived before the end of the command counts as one to the command.
                signal = self.signals.next() => self.forward(signal)?,
                change = self.child.changed() => match change? {
                    Change::Stopped(by) => self.child_stopped(by)?,
                    Change::WatchdogEnded(by) => self.kill_unguarded(by),
                    change => return Ok(Some(change)),
                },
                () = self.stage.is_over(self.guard, self.stopping) => self.next_stage(),
                // The command is stopped because it lacks the terminal, and may get it now.
                () = self.jobs.retry() => self.retry_for_terminal()?,
                never = self.stage.follow(watchdog.as_deref(), self.guard, self.stopping) => {
                    match never {}
                }
            }
        }
        Ok(None)
    }

    /// Kills the command after the end of the watchdog. The kernel has killed its
    /// first process already.
    fn kill_unguarded(&mut self, by: Option<i32>) {
        let again_at = self.kill_all();
        end_by_real_time(by);

        let ended = watchdog_ended(by);
        print_error(format_args!("{ended}; sending KILL to the command"));
        if matches!(self.stage, Stage::Held) {
            self.stage = Stage::Unguarded { again_at };
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
            (Stage::Unguarded { .. }, _) => Stage::Unguarded {
                again_at: self.kill_again(),
            },
            (Stage::Killed { .. }, _) => Stage::Killed {
                again_at: self.kill_again(),
            },
            (Stage::Terminating { .. } | Stage::Ignored, _) => self.child_outlived_term(),
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

    fn kill(&mut self, action: &str) -> Stage {
        let again_at = self.kill_all();
        self.print_lost(action);
        Stage::Killed { again_at }
    }

    fn child_outlived_term(&mut self) -> Stage {
        let again_at = self.kill_all();
        if !self.child.has_ended() {
            print_error("the command has not ended after TERM; sending KILL");
        }
        Stage::Killed { again_at }
    }

    /// Kills all processes. Returns when to do so again.
    fn kill_all(&mut self) -> Instant {
        self.report_at
            .get_or_insert_with(|| Instant::now() + KILLED_MAX);
        self.child.kill_all(KILL_FIRST);
        Instant::now() + KILL_PAUSE
    }

    fn kill_again(&mut self) -> Instant {
        let again_at = self.kill_all();
        if self.report_at.is_some_and(|at| at <= Instant::now()) {
            self.report_survivors();
        }
        again_at
    }

    /// Reports the processes that KILL does not end. leasehold waits for them as long as it holds
    /// the lock, and does not release it beside them.
    fn report_survivors(&mut self) {
        let is_lost = self.guard.check().is_err();
        if !is_lost && self.survivors != Survivors::Unreported {
            return;
        }

        let left = still_run(&self.child.left_over());
        if is_lost {
            let then = self.after_loss();
            print_error(format_args!("{left}; the lock is lost, and {then}"));
            self.survivors = Survivors::Left;
        } else {
            print_error(format_args!("{left}; the lock stays held while they run"));
            self.survivors = Survivors::Reported;
        }
    }

    /// Returns what becomes of the lock beside processes that still run.
    ///
    /// They have inherited the descriptors that keep a lock of a folder, which `break` leaves open.
    fn after_loss(&self) -> &'static str {
        let is_broken = self.guard.loss() == Some(LossReason::Revoked);
        let mut guards = self.guard.guards().iter();
        if is_broken && guards.all(|guard| folder_of(guard.store_url()).is_some()) {
            "the folder frees it when they have ended"
        } else {
            "another client may hold it beside them"
        }
    }

    /// The first signal that requests the end is answered with what leasehold waits for. The second
    /// one ends leasehold.
    fn end_beside_survivors(&mut self) {
        match self.survivors {
            Survivors::Reported => {
                let left = still_run(&self.child.left_over());
                print_error(format_args!(
                    "{left}; another signal ends leasehold, which leaves the lock unreleased"
                ));
                self.survivors = Survivors::Asked;
            }
            Survivors::Asked => self.survivors = Survivors::Left,
            Survivors::Unreported | Survivors::Left => {}
        }
    }

    fn print_lost(&self, action: &str) {
        let name = Escaped(self.guard.weakest().name());
        match self.guard.loss() {
            Some(loss) => print_error(format_args!("lost {name}: {loss}{action}")),
            None => print_error(format_args!(
                "losing {name}: {}{action}",
                self.stopping.cause(self.guard)
            )),
        }
    }

    /// Stops the descendants of the command. They may outlive the command, but not the time of
    /// KILL.
    ///
    /// The lock is released after all of them have ended, including those in other sessions. A
    /// process that was sent KILL may still write until then. One that waits for a dead disk, or
    /// belongs to another user, does not end. leasehold keeps the lock beside it as long as it can.
    /// Returns `false` if some are left.
    async fn stop_the_rest(&mut self) -> io::Result<bool> {
        match self.stage {
            Stage::Held | Stage::Ignored => return Ok(true),
            Stage::Terminating { .. } => {}
            Stage::Killed { .. } | Stage::Unguarded { .. } => {
                self.kill_all();
            }
        }
        self.all_ended().await
    }

    fn forward(&mut self, signal: Signal) -> io::Result<()> {
        self.child.signal(signal);
        self.forwarded.push(signal);
        self.report_descendants();
        if requests_end(signal) {
            // A stopped process handles the signal only after it is continued.
            self.child.signal(Signal::SIGCONT);
            self.end_beside_survivors();
        }

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
        if !self.child.has_ended() || self.report_at.is_some() {
            return;
        }
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

impl Stage {
    /// Waits until the next stage begins.
    async fn is_over(self, guard: &MultiGuard, stopping: &Stopping) {
        match self {
            Self::Held => guard.until_remaining(stopping.stop_margin()).await,
            Self::Terminating { kill_at } => sleep_until(kill_at).await,
            Self::Killed { again_at } | Self::Unguarded { again_at } => sleep_until(again_at).await,
            Self::Ignored => pending().await,
        }
    }

    /// Sends the watchdog the time until which the command may run.
    async fn follow(
        self,
        watchdog: Option<&Watchdog>,
        guard: &MultiGuard,
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
            Self::Killed { .. } | Self::Ignored | Self::Unguarded { .. } => pending().await,
        }
    }
}
