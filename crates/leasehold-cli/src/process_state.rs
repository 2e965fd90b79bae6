//! Whether the process of a claim is stopped, if it runs on this machine.

use std::fs;

use leasehold::ClaimantInfo;

use crate::run::watchdog::is_watchdog;

/// Whether the claim's process runs on this machine and is stopped.
///
/// A stopped process keeps its lock or its position in the queue, but makes no progress.
pub(crate) fn is_stopped(info: &ClaimantInfo) -> bool {
    is_here(info)
        && stat(info.pid).is_some_and(|stat| stat.is_stopped && stat.is_program(&info.program))
}

/// Whether the claim's process is a `leasehold` of this machine whose command is stopped.
pub(crate) fn is_command_stopped(info: &ClaimantInfo) -> bool {
    is_leasehold_here(info) && command_of(info.pid).is_some_and(|command| command.is_stopped)
}

/// Whether a process of this machine runs or has ended. False if that cannot be seen.
pub(crate) fn is_not_stopped(pid: i32) -> bool {
    let pid = u32::try_from(pid).ok();
    pid.and_then(stat).is_some_and(|stat| !stat.is_stopped)
}

fn is_here(info: &ClaimantInfo) -> bool {
    ClaimantInfo::here("").is_ok_and(|here| here.host == info.host)
}

/// Whether the claim's process runs on this machine and runs this program.
pub(crate) fn is_leasehold_here(info: &ClaimantInfo) -> bool {
    let is_same = ClaimantInfo::here("").is_ok_and(|here| here.program == info.program);
    is_same && is_here(info) && stat(info.pid).is_some_and(|stat| stat.is_program(&info.program))
}

/// The processes that this one descends from, its parent first.
pub(crate) fn ancestors() -> Vec<u32> {
    let parent = |pid: &u32| stat(*pid).map(|stat| stat.parent).filter(|pid| *pid > 0);
    let own = std::process::id();

    std::iter::successors(parent(&own), parent).collect()
}

/// The command of a `leasehold`: the child, of it or of its watchdog, that leads a group.
fn command_of(leasehold: u32) -> Option<Stat> {
    let leaders = leaders_below(leasehold)?;
    let watchdog = leaders.iter().find(|(pid, _)| is_watchdog(*pid));
    let leaders = match watchdog {
        Some((watchdog, _)) => leaders_below(*watchdog)?,
        None => leaders,
    };
    leaders.into_iter().next().map(|(_, stat)| stat)
}

/// The children of a process that lead a group.
fn leaders_below(parent: u32) -> Option<Vec<(u32, Stat)>> {
    let pids = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all = pids.filter_map(|pid| Some((pid, stat(pid)?)));
    Some(
        all.filter(|(pid, stat)| stat.parent == parent && stat.group == *pid)
            .collect(),
    )
}

struct Stat {
    parent: u32,
    group: u32,
    /// The first 15 bytes of the program's file name.
    program: String,
    is_stopped: bool,
}

impl Stat {
    /// Whether the process runs this program: another process may have reused the id.
    fn is_program(&self, name: &str) -> bool {
        name.as_bytes().starts_with(self.program.as_bytes())
    }
}

/// Reads `/proc/PID/stat`: the id, the program in parentheses, the state, the parent and the group.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(") ")?;
    let (_, program) = head.split_once('(')?;

    let mut numbers = tail.split(' ').skip(1).map(str::parse);

    Some(Stat {
        parent: numbers.next()?.ok()?,
        group: numbers.next()?.ok()?,
        program: program.to_owned(),
        // A process that a debugger has stopped is in the state t.
        is_stopped: tail.starts_with(['T', 't']),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_process_and_unknown_process_are_not_stopped() {
        let mut info = ClaimantInfo::here("").expect("a valid label");
        assert!(!is_stopped(&info));
        info.pid = u32::MAX;
        assert!(!is_stopped(&info));
    }
}
