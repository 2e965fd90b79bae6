//! Whether the process of a claim is stopped, if it runs on this machine.

use std::fs;

use leasehold::ClaimantInfo;

/// Whether the claim's process runs on this machine and is stopped.
///
/// A stopped process keeps its lock or its position in the queue, but makes no progress.
pub(crate) fn is_stopped(info: &ClaimantInfo) -> bool {
    let is_here = ClaimantInfo::here("").is_ok_and(|here| here.host == info.host);
    is_here && stat(info.pid).is_some_and(|stat| stat.is_stopped && stat.is_program(&info.program))
}

struct Stat {
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

/// Reads `/proc/PID/stat`: the id, the program in parentheses, and the state.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(") ")?;
    let (_, program) = head.split_once('(')?;

    Some(Stat {
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
