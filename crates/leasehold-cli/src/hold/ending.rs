//! Ends the owner of a lock that is about to be lost, and the owner's descendants.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::time::Instant;

use super::background::is_background;
use crate::commands::OnLost;
use crate::guards::Guards;
use crate::process_state::pid_behind;
use crate::run::process_table::{Process, ProcessTable};
use crate::run::stopping::{KILLED_MAX, Stopping, all_end_by};

/// The end of an owner and of its descendants.
///
/// ```text
/// begun ── TERM ──► --kill-after is over ──► KILL, repeated until none runs
///   └── --on-lost kill ────────────────────────▲
/// ```
#[derive(Debug)]
pub(super) struct Ending<'a> {
    owner: &'a OwnedFd,
    /// The descendants that were found. One whose parent has ended stays in this list, and no longer
    /// descends from the owner.
    descendants: Vec<Process>,
    kill_at: Instant,
}

impl<'a> Ending<'a> {
    /// Sends the first signal.
    pub(super) fn begin(owner: &'a OwnedFd, stopping: &Stopping, guards: &Guards) -> Self {
        let mut ending = Self {
            owner,
            descendants: Vec::new(),
            kill_at: Instant::now(),
        };

        ending.find_descendants();
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

    /// Returns when all processes have ended, or do not end after KILL either.
    ///
    /// # Cancel safety
    ///
    /// A dropped call sends no further signals.
    pub(super) async fn finish(&mut self) {
        if all_end_by(self.kill_at, || self.any_runs()).await {
            return;
        }

        let any_runs_after_kill = || {
            let runs = self.any_runs();
            if runs {
                self.signal(Signal::KILL);
            }
            runs
        };
        if !all_end_by(Instant::now() + KILLED_MAX, any_runs_after_kill).await {
            tracing::warn!("processes of the lock's owner still run after KILL");
        }
    }

    fn any_runs(&mut self) -> bool {
        self.find_descendants();
        !self.descendants.is_empty() || !self.owner_has_ended()
    }

    fn signal(&self, signal: Signal) {
        // Fails if the owner has ended.
        let _ = pidfd_send_signal(self.owner, signal);
        self.descendants
            .iter()
            .for_each(|process| process.signal(signal));
    }

    /// Finds the descendants that run now, and those of the descendants found before.
    ///
    /// The background processes of `acquire` are none of them, although they are children of an
    /// owner that is the first process of a container, or that adopts orphans. Each ends with an
    /// owner of its own. Ended sooner, it would free a lock whose owner still runs.
    fn find_descendants(&mut self) {
        // Without /proc, or with that of another namespace, only the owner itself is known.
        let Ok(table) = ProcessTable::read() else {
            return;
        };

        self.descendants = table.running(&self.descendants);
        let known = self.descendants.iter().map(|process| process.pid);
        // The owner had its id while the table was read, because it still has it now.
        let roots: Vec<i32> = known.chain(self.owner_pid()).collect();
        let found = table.descendants(&roots, &roots);
        let found = found
            .into_iter()
            .filter(|process| !is_background(process.pid));
        self.descendants.extend(found);
    }

    fn owner_pid(&self) -> Option<i32> {
        let info = Path::new("/proc/self/fdinfo").join(self.owner.as_raw_fd().to_string());
        pid_behind(&info).filter(|pid| *pid > 0)
    }

    fn owner_has_ended(&self) -> bool {
        let mut polled = [PollFd::new(self.owner, PollFlags::IN)];
        let now = Timespec::default();
        // An error means that the end cannot be observed: the owner then gets KILL in time.
        matches!(poll(&mut polled, Some(&now)), Ok(ready) if ready > 0)
    }
}
