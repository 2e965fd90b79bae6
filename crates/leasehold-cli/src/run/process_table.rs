//! The processes that `/proc` lists, with their parents.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{read, read_dir, read_link};
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// One process, as it was when the table was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// The first 15 bytes of the program's file name, or a name that the process has given itself.
    program: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) is_stopped: bool,
    /// When it started, in ticks since the boot. A later process with the same id differs in it.
    started: u64,
}

/// The processes of this process's namespace, by their ids.
#[derive(Debug)]
pub(crate) struct ProcessTable(BTreeMap<i32, Process>);

impl ProcessTable {
    /// Reads all processes, except those that this user may not see. Nobody can tell the parents of
    /// these.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) if `/proc` is missing,
    /// [`Unsupported`](io::ErrorKind::Unsupported) if it shows another namespace's processes. Any
    /// other error means that processes may run which could not be read.
    pub(crate) fn read() -> io::Result<Self> {
        check_namespace()?;

        let mut processes = BTreeMap::new();
        for pid in pids()? {
            match Process::read(pid) {
                Ok(process) => processes.extend(process.map(|process| (pid, process))),
                // `/proc` is mounted with `hidepid`, and the process belongs to another user.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(processes))
    }

    /// Returns the running descendants of `roots`, except those in `excluded` and their descendants.
    pub(crate) fn descendants(&self, roots: &[i32], excluded: &[i32]) -> Vec<Process> {
        let excluded: HashSet<i32> = excluded.iter().copied().collect();
        let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
        for process in self.0.values().filter(|process| !process.has_ended) {
            children.entry(process.parent).or_default().push(process);
        }

        let mut found = Vec::new();
        let mut parents = roots.to_vec();
        while let Some(parent) = parents.pop() {
            let below = children.remove(&parent).unwrap_or_default();
            for process in below {
                if !excluded.contains(&process.pid) {
                    parents.push(process.pid);
                    found.push(process.clone());
                }
            }
        }
        found
    }

    /// Returns those of `known` that still run. One that cannot be read does.
    pub(crate) fn running(&self, known: &[Process]) -> Vec<Process> {
        let is_running = |process: &&Process| match self.0.get(&process.pid) {
            Some(now) => now.started == process.started && !now.has_ended,
            None => !matches!(Process::read(process.pid), Ok(None)),
        };
        known.iter().filter(is_running).cloned().collect()
    }

    /// Returns the children of a process, also those that have ended.
    pub(crate) fn children(&self, parent: i32) -> impl Iterator<Item = &Process> {
        let all = self.0.values();
        all.filter(move |process| process.parent == parent)
    }

    /// Returns the running processes of a group.
    pub(crate) fn group(&self, group: i32) -> impl Iterator<Item = &Process> {
        let all = self.0.values();
        all.filter(move |process| process.group == group && !process.has_ended)
    }

    /// Returns the ids of a process, its parent, and so on.
    pub(crate) fn with_ancestors(&self, pid: i32) -> HashSet<i32> {
        let mut ancestors = HashSet::from([pid]);
        let mut next = self.0.get(&pid);
        while let Some(process) = next {
            if !ancestors.insert(process.parent) {
                break;
            }
            next = self.0.get(&process.parent);
        }
        ancestors
    }
}

impl Process {
    /// Reads a process; `None` if it has ended and was reaped.
    pub(crate) fn read(pid: i32) -> io::Result<Option<Self>> {
        match read(format!("/proc/{pid}/stat")) {
            Ok(stat) => Self::parse(&stat)
                .map(Some)
                .ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(error) if has_ended(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a process for a message or another use that can do without it.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        Self::read(pid).ok().flatten()
    }

    /// Parses `/proc/PID/stat`.
    ///
    /// Its format is `PID (NAME) STATE PARENT GROUP …`. NAME may contain any bytes, `) ` included:
    /// a process can change it, and the kernel cuts a longer one inside a character.
    /// A zombie counts as ended: its parent, such as the first process of a container, may never
    /// reap it. A zombie with other threads is a process whose first thread alone has ended.
    fn parse(stat: &[u8]) -> Option<Self> {
        const THREADS: usize = 17;
        const STARTED: usize = 19;

        let begin = stat.iter().position(|byte| *byte == b'(')?;
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let pid = str::from_utf8(&stat[..begin]).ok()?;
        let rest = str::from_utf8(stat.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let threads: u32 = fields.get(THREADS)?.parse().ok()?;

        Some(Self {
            pid: pid.trim_end().parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            program: stat.get(begin + 1..end)?.to_owned(),
            has_ended: rest.starts_with(['X', 'Z']) && threads <= 1,
            // A process that a debugger has stopped is in the state t.
            is_stopped: rest.starts_with(['T', 't']),
            started: fields.get(STARTED)?.parse().ok()?,
        })
    }

    pub(crate) fn program(&self) -> String {
        String::from_utf8_lossy(&self.program).into_owned()
    }

    /// Whether the process runs this program: another process may have reused the id.
    pub(crate) fn is_program(&self, name: &str) -> bool {
        name.as_bytes().starts_with(&self.program)
    }

    /// Sends a signal, unless the process has ended and another process has its id.
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that the process has ended, or belongs to a user whose processes leasehold
        // may not signal.
        let _ = self.try_signal(signal);
    }

    fn try_signal(&self, signal: Signal) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        // Linux has it since version 5.3. A seccomp filter may refuse it, and it needs a free
        // descriptor. Without it, the process may end between the next two calls.
        let descriptor = pidfd_open(pid, PidfdFlags::empty());

        // If the process has its id still, then the descriptor belongs to it, and not to a later
        // process with the same id.
        match (Self::read(self.pid), descriptor) {
            (Ok(None), _) => Ok(()),
            (Ok(Some(now)), _) if now.started != self.started => Ok(()),
            // The pidfd may have taken the last free descriptor, which reading needs.
            (_, Ok(descriptor)) => Ok(pidfd_send_signal(descriptor, signal)?),
            (Ok(Some(_)), Err(_)) => Ok(kill_process(pid, signal)?),
            (Err(error), Err(_)) => Err(error),
        }
    }
}

fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    // All at once: the list must not keep the last free descriptor, which reading them needs.
    for entry in read_dir("/proc")? {
        pids.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok()),
        );
    }
    Ok(pids)
}

/// Whether an error of a file below `/proc/PID` means that there is no such process any more.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::SRCH].contains(&Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// The number of a process differs between namespaces, and `/proc` shows those of its mount.
fn check_namespace() -> io::Result<()> {
    let shown = read_link("/proc/self")?;
    let own = getpid().as_raw_nonzero().to_string();

    if shown.as_os_str() == own.as_str() {
        Ok(())
    } else {
        let message = "/proc belongs to another PID namespace";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &[u8], state: char, threads: u32) -> Vec<u8> {
        let rest = format!(") {state} 3 5 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 0 0");
        [b"7 (", name, rest.as_bytes()].concat()
    }

    #[test]
    fn stat_is_parsed_with_any_name() {
        // The last one is cut inside a character.
        let names: [&[u8]; 5] = [b"sh", b"a b", b"a) R 1 1 (", b") Z 1", b"job_\xe6\x95"];
        for name in names {
            let expected = Process {
                pid: 7,
                parent: 3,
                group: 5,
                program: name.to_owned(),
                has_ended: false,
                is_stopped: false,
                started: 99,
            };
            assert_eq!(
                Process::parse(&line(name, 'S', 1)),
                Some(expected),
                "{name:?}"
            );
        }
        for text in ["", "7 (sh)", "7 (sh) S 3", "x (sh) S 3 5"] {
            assert_eq!(Process::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn zombie_with_running_threads_has_not_ended() {
        let has_ended = |state, threads| {
            Process::parse(&line(b"sh", state, threads))
                .unwrap()
                .has_ended
        };
        assert!(has_ended('Z', 1) && has_ended('X', 0));
        assert!(!has_ended('Z', 2) && !has_ended('T', 1));
    }

    #[test]
    fn descendants_exclude_other_trees_and_ended_processes() {
        let process = |pid, parent, has_ended| Process {
            pid,
            parent,
            group: 1,
            program: Vec::new(),
            has_ended,
            is_stopped: false,
            started: 1,
        };
        let list = [
            process(1, 0, false),
            process(2, 1, false),
            process(3, 2, false),
            process(4, 1, false),
            process(5, 4, false),
            process(6, 2, true),
            process(7, 9, false),
        ];
        let table = ProcessTable(list.into_iter().map(|one| (one.pid, one)).collect());
        let mut found: Vec<_> = table
            .descendants(&[1], &[4])
            .into_iter()
            .map(|one| one.pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [2, 3]);
        assert_eq!(table.with_ancestors(3), HashSet::from([3, 2, 1, 0]));
    }
}
