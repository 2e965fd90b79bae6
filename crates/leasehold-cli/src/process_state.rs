//! The processes of claims that run on this machine.

use std::fs;
use std::io;
use std::path::Path;

use leasehold::ClaimantInfo;
use leasehold::store::claimant_here;

use crate::own_program::is_watchdog;
use crate::run::process_table::{Process, ProcessTable, has_ended};

/// Whether the claim's process runs on this machine and is stopped.
///
/// A stopped process keeps its lock or its position in the queue, but makes no progress.
pub(crate) fn is_stopped(info: &ClaimantInfo) -> bool {
    process_here(info).is_some_and(|process| process.is_stopped)
}

/// Whether the claim's process is a `leasehold` of this machine whose command is stopped.
pub(crate) fn is_command_stopped(info: &ClaimantInfo) -> bool {
    leasehold_here(info)
        .and_then(|leasehold| command_of(leasehold.pid))
        .is_some_and(|command| command.is_stopped)
}

/// The claim's process, if it runs on this machine and runs the same program as this one.
pub(crate) fn leasehold_here(info: &ClaimantInfo) -> Option<Process> {
    let here = claimant_here("").ok()?;
    (here.program == info.program).then(|| process_here(info))?
}

fn process_here(info: &ClaimantInfo) -> Option<Process> {
    let here = claimant_here("").ok()?;
    let is_here = here.host == info.host;
    let process = Process::find(i32::try_from(info.pid).ok().filter(|_| is_here)?)?;
    process.is_program(&info.program).then_some(process)
}

/// The processes that this one descends from, its parent first.
pub(crate) fn ancestors() -> Vec<i32> {
    let parent = |pid: &i32| {
        let process = Process::find(*pid)?;
        Some(process.parent).filter(|parent| *parent > 0)
    };
    let own = nix::unistd::getpid().as_raw();
    std::iter::successors(parent(&own), parent).collect()
}

/// The command of a `leasehold`: the child, of it or of its watchdog, that leads a group.
fn command_of(leasehold: i32) -> Option<Process> {
    let leaders_below = |parent| {
        let children = children_of(parent).unwrap_or_default();
        children
            .into_iter()
            .filter(|child| child.group == child.pid)
    };

    let watchdog = leaders_below(leasehold).find(|leader| is_watchdog(leader.pid));
    let parent = watchdog.map_or(leasehold, |watchdog| watchdog.pid);
    leaders_below(parent).next()
}

/// The children of all threads of a process. The table of all processes is read only where the kernel
/// lists no children: a lock may have a thousand claims on this machine.
fn children_of(parent: i32) -> io::Result<Vec<Process>> {
    let mut children = Vec::new();
    for entry in fs::read_dir(format!("/proc/{parent}/task"))? {
        let thread = entry?.path();
        match fs::read_to_string(thread.join("children")) {
            Ok(list) => children.extend(
                list.split_whitespace()
                    .filter_map(|pid| Process::find(pid.parse().ok()?)),
            ),
            // The kernel has no CONFIG_PROC_CHILDREN.
            Err(error) if has_ended(&error) && thread.exists() => {
                return Ok(ProcessTable::read()?.children(parent).cloned().collect());
            }
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// The process behind a pidfd, by its file in a folder `fdinfo`: see `pidfd_open`(2).
pub(crate) fn pid_behind(info: &Path) -> Option<i32> {
    let text = fs::read_to_string(info).ok()?;
    let mut lines = text.lines();
    let pid = lines.find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_process_and_unknown_process_are_not_stopped() {
        let mut info = claimant_here("").expect("a valid label");
        assert!(!is_stopped(&info));
        info.pid = u32::MAX;
        assert!(!is_stopped(&info));
    }
}
