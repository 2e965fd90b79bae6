//! The children of this process, which adopts its orphaned descendants.

use std::fs::read_to_string;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, waitid, waitpid,
};

use super::process_table::ProcessTable;

/// How long KILL is repeated. A process that waits for a dead disk cannot end.
const KILL_MAX: Duration = Duration::from_secs(10);

/// Returns the children of this process's main thread, also those that have ended.
pub(crate) fn children() -> io::Result<Vec<i32>> {
    let own = getpid().as_raw_pid();
    if let Ok(list) = read_to_string(format!("/proc/self/task/{own}/children")) {
        let pids = list.split_whitespace();
        return Ok(pids.filter_map(|pid| pid.parse().ok()).collect());
    }

    // A kernel without CONFIG_PROC_CHILDREN.
    let table = ProcessTable::read()?;
    Ok(table.children(own).map(|child| child.pid).collect())
}

/// Returns the children of this process.
///
/// A shell may have started a background process and then replaced itself with leasehold.
pub(crate) fn own_children() -> Vec<i32> {
    // This call is cheaper than the list, and leasehold rarely has children here.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if waitid(WaitId::All, options).is_err_and(|error| error == Errno::CHILD) {
        return Vec::new();
    }
    children().unwrap_or_default()
}

/// Reaps the children that have ended, except those in `kept`.
pub(crate) fn reap_except(kept: &[i32]) {
    // Without /proc, the orphans remain as zombies until this process ends.
    let children = children().unwrap_or_default().into_iter();
    children.filter(|pid| !kept.contains(pid)).for_each(reap);
}

/// Kills all descendants of a subreaper, except the trees of the children in `spared`. Returns when
/// none runs.
///
/// It may reap all children except `unreaped`.
///
/// A process that forks can outrun a list of all processes, which takes milliseconds to read. So
/// this kills the children, whose own children become children of this process then, and repeats
/// that without a pause.
pub(crate) fn kill_descendants(unreaped: i32, spared: &[i32]) -> io::Result<()> {
    const ROUND: Duration = Duration::from_millis(1);

    let deadline = Instant::now() + KILL_MAX;
    let mut last = Vec::new();
    while Instant::now() < deadline {
        let found = children_except(spared)?;
        for child in &found {
            kill(*child);
        }

        let running: Vec<i32> = found.iter().copied().filter(|pid| runs(*pid)).collect();
        // The kernel appends an orphan to the list before it reports the end of its parent.
        if running.is_empty() && children_except(spared)? == found {
            return Ok(());
        }

        let others = found.into_iter().filter(|pid| *pid != unreaped);
        others.for_each(reap);
        if running == last {
            // They take their time, or belong to a user whose processes this one may not signal.
            kill_whole_trees(spared)?;
            sleep(ROUND);
        }
        last = running;
    }
    Ok(())
}

fn children_except(spared: &[i32]) -> io::Result<Vec<i32>> {
    let mut children = children()?;
    children.retain(|pid| !spared.contains(pid));
    Ok(children)
}

fn kill_whole_trees(spared: &[i32]) -> io::Result<()> {
    let own = getpid().as_raw_pid();
    for process in ProcessTable::read()?.descendants(&[own], spared) {
        process.signal(Signal::KILL);
    }
    Ok(())
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
