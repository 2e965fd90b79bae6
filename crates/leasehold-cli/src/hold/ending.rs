//! Ends the owner of a lock that is about to be lost, and the owner's descendants.

use std::io::ErrorKind::{NotFound, Unsupported};
use std::io::Result;

use leasehold::MultiGuard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::time::Instant;

use super::background::is_background;
use super::owner::OwnerProcess;
use crate::commands::OnLost;
use crate::exit::print_error;
use crate::run::process_table::{Process, ProcessTable};
use crate::run::signals::Signals;
use crate::run::stopping::{KILLED_MAX, Stopping, all_end_by};

/// The end of an owner and of its descendants.
///
/// ```text
/// begun ── TERM ──► --kill-after is over ──► KILL, repeated until none runs
///   └── --on-lost kill ────────────────────────▲
/// ```
#[derive(Debug)]
pub(super) struct Ending<'a> {
    owner: &'a OwnerProcess,
    /// The owner and its descendants that were found. One whose parent has ended stays in this list,
    /// and no longer descends from the owner.
    known: Vec<Process>,
    kill_at: Instant,
}

impl<'a> Ending<'a> {
    /// Sends the first signal.
    pub(super) fn begin(
        owner: &'a mut OwnerProcess,
        stopping: &Stopping,
        guards: &MultiGuard,
    ) -> Self {
        owner.spare.clear();
        let mut ending = Self {
            owner,
            known: owner.entry.iter().cloned().collect(),
            kill_at: Instant::now(),
        };

        // What cannot be read now is looked for until the end.
        let _ = ending.find_descendants();
        if stopping.on_lost == OnLost::Kill {
            ending.signal(Signal::KILL);
        } else {
            ending.kill_at += stopping.time_to_kill(guards);
            ending.signal(Signal::TERM);
            // A stopped process handles TERM only after it is continued.
            ending.signal(Signal::CONT);
        }
        ending
    }

    /// Waits until all processes have ended. Returns `false` if some are left, which do not end
    /// after KILL either: when the hold is lost, or at a signal after they were reported.
    ///
    /// # Cancel safety
    ///
    /// A dropped call sends no further signals.
    pub(super) async fn finish(&mut self, guards: &MultiGuard, signals: &mut Signals) -> bool {
        if all_end_by(self.kill_at, || self.any_runs()).await || self.killed_end().await {
            return true;
        }

        let left: Vec<_> = self.known.iter().map(|one| one.pid.to_string()).collect();
        let left = format!(
            "processes of the lock's owner still run after KILL: {}",
            left.join(", ")
        );
        if guards.check().is_ok() {
            print_error(format_args!("{left}; the lock stays held while they run"));
        }
        while guards.check().is_ok() {
            tokio::select! {
                ended = self.killed_end() => if ended {
                    return true;
                },
                _ = signals.next_to_end() => break,
            }
        }
        print_error(format_args!("{left}; the lock is not released beside them"));
        false
    }

    /// Repeats KILL. Returns `false` if processes still run after that.
    async fn killed_end(&mut self) -> bool {
        let any_runs = || {
            let runs = self.any_runs();
            if runs {
                self.signal(Signal::KILL);
            }
            runs
        };
        all_end_by(Instant::now() + KILLED_MAX, any_runs).await
    }

    fn any_runs(&mut self) -> bool {
        // A process that was forked while `/proc` was read may be in the second reading alone.
        self.any_found() || self.any_found()
    }

    fn any_found(&mut self) -> bool {
        let is_read = self.find_descendants().is_ok();
        !is_read || !self.known.is_empty() || !self.owner_has_ended()
    }

    fn signal(&self, signal: Signal) {
        // Fails if the owner has ended.
        let _ = pidfd_send_signal(&self.owner.pidfd, signal);
        let owner = self.owner.entry.as_ref();
        let descendants = self.known.iter().filter(|process| Some(*process) != owner);
        descendants.for_each(|process| process.signal(signal));
    }

    /// Finds the descendants that run now, and those of the descendants found before. An error means
    /// that others may run.
    ///
    /// The background processes of `acquire` are none of them, although they are children of an
    /// owner that is the first process of a container, or that adopts orphans. Each ends with an
    /// owner of its own. Ended sooner, it would free a lock whose owner still runs.
    fn find_descendants(&mut self) -> Result<()> {
        let table = match ProcessTable::read() {
            Ok(table) => table,
            Err(error) if matches!(error.kind(), NotFound | Unsupported) => {
                // Without /proc, or with that of another namespace, only the owner itself is known.
                self.known.clear();
                return Ok(());
            }
            Err(error) => return Err(error),
        };

        self.known = table.running(&self.known);
        let roots: Vec<i32> = self.known.iter().map(|process| process.pid).collect();
        for process in table.descendants(&roots, &roots) {
            if !is_background(process.pid)? {
                self.known.push(process);
            }
        }
        Ok(())
    }

    fn owner_has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.owner.pidfd, PollFlags::IN)];
        let now = Timespec::default();
        // An error means that the end cannot be observed: the owner then gets KILL in time.
        matches!(poll(&mut polled, Some(&now)), Ok(ready) if ready > 0)
    }
}
