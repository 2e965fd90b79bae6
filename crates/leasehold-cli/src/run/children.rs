//! The children of this process, which adopts its orphaned descendants.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, waitid, waitpid,
};

use super::process_table::ProcessTable;

/// The list of the children of this process's main thread.
///
/// It stays open, because a process that has no descriptor left must still find and kill them.
#[derive(Debug)]
pub(crate) struct Children(Option<File>);

impl Children {
    pub(crate) fn open() -> io::Result<Self> {
        let own = getpid().as_raw_pid();
        match File::open(format!("/proc/self/task/{own}/children")) {
            Ok(list) => Ok(Self(Some(list))),
            // A kernel without CONFIG_PROC_CHILDREN, or /proc of another PID namespace.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }

    /// Returns the children, also those that have ended.
    ///
    /// None is missing: the kernel appends an orphan to the list before it reports the end of its
    /// parent, and only this process removes children from it, by reaping them.
    fn list(&self) -> io::Result<Vec<i32>> {
        let Some(mut file) = self.0.as_ref() else {
            let table = ProcessTable::read()?;
            let children = table.children(getpid().as_raw_pid());
            return Ok(children.map(|child| child.pid).collect());
        };

        let mut list = String::new();
        file.rewind()?;
        file.read_to_string(&mut list)?;
        let pids = list.split_whitespace();
        Ok(pids.filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Returns the children that this process has before it starts any.
    ///
    /// A shell may have started a background process and then replaced itself with leasehold.
    pub(crate) fn at_start(&self) -> io::Result<Vec<i32>> {
        // This call is cheaper than the list, and leasehold rarely has children here.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::All, options).is_err_and(|error| error == Errno::CHILD) {
            return Ok(Vec::new());
        }
        self.list()
    }

    /// Returns the children except those in `spared`, also those that have ended.
    pub(crate) fn except(&self, spared: &[i32]) -> io::Result<Vec<i32>> {
        let mut children = self.list()?;
        children.retain(|pid| !spared.contains(pid));
        Ok(children)
    }

    /// Reaps the children that have ended, except those in `kept`.
    pub(crate) fn reap_except(&self, kept: &[i32]) {
        // Without /proc, the orphans remain as zombies until this process ends.
        let ended = self.except(kept).unwrap_or_default();
        ended.into_iter().for_each(reap);
    }

    /// Kills all descendants of a subreaper, except the trees of the children in `spared`. Returns
    /// the children that still run at the end of this time; none if all descendants have ended.
    ///
    /// It may reap all children except `unreaped`.
    ///
    /// A process that forks can outrun a list of all processes, which takes milliseconds to read.
    /// So this kills the children, whose own children become children of this process then, and
    /// repeats that without a pause.
    pub(crate) fn kill_descendants(
        &self,
        unreaped: i32,
        spared: &[i32],
        within: Duration,
    ) -> io::Result<Vec<i32>> {
        const PAUSE_MIN: Duration = Duration::from_millis(1);
        const PAUSE_MAX: Duration = Duration::from_millis(250);

        let mut pause = PAUSE_MIN;
        let deadline = Instant::now() + within;
        let mut last = Vec::new();
        loop {
            let found = self.except(spared)?;
            for child in &found {
                kill(*child);
            }

            let running: Vec<i32> = found.iter().copied().filter(|pid| runs(*pid)).collect();
            // Nothing has been appended since, so none has left an orphan.
            if running.is_empty() && self.except(spared)? == found {
                return Ok(running);
            }

            let others = found.into_iter().filter(|pid| *pid != unreaped);
            others.for_each(reap);
            if Instant::now() >= deadline {
                let mut left = self.except(spared)?;
                left.retain(|pid| runs(*pid));
                return Ok(left);
            }
            if running == last {
                // They take their time, or belong to a user whose processes this one may not
                // signal.
                kill_whole_trees(spared);
                sleep(pause);
                pause = PAUSE_MAX.min(pause * 2);
            } else {
                pause = PAUSE_MIN;
            }
            last = running;
        }
    }
}

/// Whether a child of this process belongs to this group. While one does, no other group can have
/// the id, even if the leader of the group was reaped.
pub(crate) fn has_child_in(group: i32) -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(group).is_some_and(|group| waitid(WaitId::Pgid(Some(group)), peek).is_ok())
}

/// Kills the descendants that `/proc` shows. Those that it does not show become children later.
fn kill_whole_trees(spared: &[i32]) {
    let own = getpid().as_raw_pid();
    if let Ok(table) = ProcessTable::read() {
        let descendants = table.descendants(&[own], spared).into_iter();
        descendants.for_each(|process| process.signal(Signal::KILL));
    }
}

/// Kills a child. Its id stays its own until this process reaps it.
fn kill(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        // Fails if the child belongs to a user whose processes this one may not signal.
        let _ = kill_process(child, Signal::KILL);
    }
}

fn runs(child: i32) -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Pid::from_raw(child).is_some_and(|child| matches!(waitid(WaitId::Pid(child), peek), Ok(None)))
}

fn reap(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        // Nothing depends on the status of an orphan.
        let _ = waitpid(Some(child), WaitOptions::NOHANG);
    }
}
