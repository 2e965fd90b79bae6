//! The processes behind the holds whose own process cannot be found under the id that they name.
//!
//! A process that ends leaves its hold to the processes that inherited its descriptors. A process
//! of another PID namespace has another id here. `/proc` shows which processes have the FIFO of a
//! claim's process or `NAME.lock` open. It hides the descriptors of other users' processes, so all
//! of this is for people, and no decision depends on it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::folder::location::Location;
use super::lock_file::{external_holder, flock_file, parse_holder};
use super::process::{FileId, ProcessId, file_id, flags};
use crate::{ClaimProcess, ClaimantInfo, ExternalHolder, LockState, Name};

/// How long a search may take. Any user can start processes with many open files.
const SEARCH_MAX: Duration = Duration::from_millis(300);

/// The holds and flock(2) locks of one name whose processes must be searched.
pub(super) struct Search {
    lock: Location,
    /// The FIFO of each hold's process, after the hold's index.
    fifos: Vec<(usize, Location)>,
}

impl Search {
    /// Returns `None` if this machine lists all holders. `processes` are those of the entries.
    pub(super) fn needed(
        folder: &Arc<Folder>,
        name: &Name,
        lock_state: &LockState,
        processes: &[ProcessId],
    ) -> Option<Self> {
        let entries = lock_state.entries.iter().zip(processes).enumerate();
        let fifos: Vec<_> = entries
            .filter(|(_, (entry, _))| entry.token().is_some())
            .map(|(at, (entry, process))| {
                (at, entry, Location::member(folder, &process.to_string()))
            })
            .filter(|(_, entry, fifo)| !is_listed(&entry.info, fifo))
            .map(|(at, _, fifo)| (at, fifo))
            .collect();

        let mut flocks = lock_state.external_holders.iter();
        let lock = Location::lock(folder, name);
        (!fifos.is_empty() || flocks.any(has_ended)).then_some(Self { lock, fifos })
    }

    /// Adds the processes that are found. This takes milliseconds, and stops after [`SEARCH_MAX`].
    pub(super) fn run(self, lock_state: &mut LockState) {
        let until = Instant::now() + SEARCH_MAX;
        let fifos = self.fifos.iter().map(|(_, fifo)| fifo.path());
        let paths: Vec<PathBuf> = fifos.chain([self.lock.path()]).collect();
        let names: Vec<&OsStr> = paths.iter().filter_map(|path| path.file_name()).collect();
        let found: Vec<Descriptor> = pids()
            .take_while(|_| Instant::now() < until)
            .flat_map(|pid| Descriptor::read(pid, &names, until).unwrap_or_default())
            .collect();

        for (at, fifo) in &self.fifos {
            lock_state.entries[*at].process = Some(process_of(fifo, &found));
        }
        self.replace_ended(&mut lock_state.external_holders, &found);
        let entries = &lock_state.entries;
        lock_state.external_holders.retain(|holder| {
            let mut processes = entries.iter().filter_map(|entry| entry.process.as_ref());
            !processes.any(|process| process.processes().contains(holder))
        });
    }

    /// Replaces each process that has ended by those that inherited its locked file.
    fn replace_ended(&self, flocks: &mut Vec<ExternalHolder>, found: &[Descriptor]) {
        let Some(file) = flock_file(&self.lock) else {
            return;
        };
        let heirs = |ended: &ExternalHolder| {
            let locked = found.iter().filter(|one| one.has_locked(&file, ended.pid));
            let mut heirs: Vec<_> = locked.map(|one| external_holder(one.pid)).collect();
            heirs.dedup();
            heirs
        };

        let (ended, mut running): (Vec<_>, Vec<_>) = flocks.drain(..).partition(has_ended);
        for holder in ended {
            match heirs(&holder) {
                heirs if heirs.is_empty() => running.push(holder),
                heirs => running.extend(heirs),
            }
        }
        *flocks = running;
    }
}

/// Whether the process that a claim names is the one that opened the store for it. A process whose
/// descriptors may not be read is taken for it.
fn is_listed(info: &ClaimantInfo, fifo: &Location) -> bool {
    let path = fifo.path();
    let names: Vec<&OsStr> = path.file_name().into_iter().collect();
    match Descriptor::read(info.pid, &names, Instant::now() + SEARCH_MAX) {
        Ok(found) => found.iter().any(Descriptor::is_of_opener),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn has_ended(holder: &ExternalHolder) -> bool {
    !Path::new("/proc").join(holder.pid.to_string()).exists()
}

fn process_of(fifo: &Location, found: &[Descriptor]) -> ClaimProcess {
    let fifo = fifo.stat().ok().flatten().map(|status| file_id(&status));
    let users = || found.iter().filter(|one| Some(one.file) == fifo);
    if let Some(opener) = users().find(|one| one.is_of_opener()) {
        return ClaimProcess::OtherNamespace(external_holder(opener.pid));
    }

    let heirs = users().filter(|one| one.is_inherited());
    let mut heirs: Vec<_> = heirs.map(|one| external_holder(one.pid)).collect();
    heirs.dedup();
    if heirs.is_empty() {
        ClaimProcess::Unseen
    } else {
        ClaimProcess::Ended { held_by: heirs }
    }
}

/// An open file of a process.
struct Descriptor {
    pid: u32,
    file: FileId,
    /// Its flags and locks: see proc(5).
    info: PathBuf,
}

const O_ACCMODE: u32 = 0o3;
const O_RDWR: u32 = 0o2;
const O_CLOEXEC: u32 = 0o2_000_000;

impl Descriptor {
    /// Reads the descriptors of a process for files with these names.
    ///
    /// It reads a link before it looks at the file: a file system that does not reply would block it.
    fn read(pid: u32, names: &[&OsStr], until: Instant) -> io::Result<Vec<Self>> {
        let process = Path::new("/proc").join(pid.to_string());
        let descriptors = fs::read_dir(process.join("fd"))?.flatten();
        let descriptors = descriptors.take_while(|_| Instant::now() < until);

        let of_store = descriptors.filter(|descriptor| {
            let file = fs::read_link(descriptor.path()).unwrap_or_default();
            file.file_name().is_some_and(|name| names.contains(&name))
        });
        let found = of_store.filter_map(|descriptor| {
            Some(Self {
                pid,
                file: file_id(&rustix::fs::stat(descriptor.path()).ok()?),
                info: process.join("fdinfo").join(descriptor.file_name()),
            })
        });
        Ok(found.collect())
    }

    /// Whether the process has opened the FIFO as its own.
    fn is_of_opener(&self) -> bool {
        flags(&self.info).is_some_and(|flags| flags & (O_ACCMODE | O_CLOEXEC) == O_RDWR | O_CLOEXEC)
    }

    /// Whether the process has inherited the FIFO. A process that watches another one has its FIFO
    /// open for writing alone.
    fn is_inherited(&self) -> bool {
        flags(&self.info).is_some_and(|flags| flags & (O_ACCMODE | O_CLOEXEC) == O_RDWR)
    }

    /// Whether `pid` has locked this file by flock(2), and the process has inherited it.
    fn has_locked(&self, file: &str, pid: u32) -> bool {
        let info = fs::read_to_string(&self.info).unwrap_or_default();
        let mut locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.any(|lock| parse_holder(lock, file) == Some(pid))
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
