//! The file `NAME.lock`: made, its users listed, and removed if leasehold made it and no other
//! process uses it.
//!
//! A process that has the removed file open could lock that file while another process locks a new
//! one. leasehold notices that, but flock(1) does not. So these files stay:
//!
//! - A file that leasehold did not make: flock(1), `touch` or a redirection of a shell makes an
//!   empty one. A redirection with `>` also empties a file that leasehold made.
//! - A file that a process outside the store has locked or waits for. leasehold empties it, so that
//!   it stays forever.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;

use rustix::fs::{FileType, FlockOperation, OFlags, ftruncate, major, minor};
use rustix::io::Errno;

use super::folder::location::{Location, OpenFile};
use super::folder::object::OpenError;
use super::process::Members;
use crate::{ExternalHolder, Result};

/// The content of a lock file that leasehold made.
pub(super) const CONTENT: &[u8] =
    b"leasehold made this file, and removes it when the lock is free.\n\
    To share the lock with flock(1), empty the file. It then stays.\n";

/// Opens the lock file, and makes it if it is missing.
///
/// A regular file that another user or program made is accepted.
pub(super) fn open_or_make(at: &Location) -> Result<OpenFile> {
    at.open_or_make(OFlags::RDONLY, CONTENT, "open")
}

/// Refuses what is no regular file, such as a link to the file that another program locks: nothing is
/// known of its users.
pub(super) fn check_type(at: &Location) -> Result<()> {
    let found = at
        .stat()?
        .map(|status| FileType::from_raw_mode(status.st_mode));
    match found {
        None | Some(FileType::RegularFile) => Ok(()),
        Some(other) => Err(at.open_error(OpenError::Type(other), "open")),
    }
}

/// Removes the lock file of a free name, if leasehold made it. Returns false if it stays because
/// another process uses it. The caller has the queue file locked.
pub(super) fn remove(at: &Location) -> Result<bool> {
    let Some(file) = open_own(at)? else {
        return Ok(true);
    };
    if !file.lock(FlockOperation::NonBlockingLockExclusive, at)? {
        keep_if_locked_by_others(at);
        return Ok(false);
    }

    let removal = remove_locked(at, &file);
    file.unlock();
    removal
}

/// Removes the lock file, which this process has locked exclusively. Returns false if it stays.
///
/// The path must still name this file, because another process may have replaced it before it was
/// locked. Of the processes that have it open, those of leasehold compare it with the path once
/// they have locked it, and then open the new file. flock(1) does not, but the kernel lists it from
/// the moment at which it waits. A list without the lock of this process says nothing about the
/// waiters, so the file stays then too. What remains is a flock(1) that has opened the file and
/// does not wait yet, or that waits in another PID namespace: docs/stores/file.md has the remedy.
fn remove_locked(at: &Location, file: &OpenFile) -> Result<bool> {
    if file.status_at(at)?.is_none() {
        return Ok(false);
    }
    match other_users(file.inode()) {
        OtherUsers::None => {}
        OtherUsers::Unknown => return Ok(false),
        OtherUsers::Waiting => {
            keep_for_others(at);
            return Ok(false);
        }
    }

    at.remove()?;
    Ok(true)
}

/// Whether there is a `NAME.lock` that leasehold made.
pub(super) fn is_made_by_leasehold(at: &Location) -> Result<bool> {
    Ok(open_own(at)?.is_some())
}

/// Empties a locked file, unless only processes of the store have it locked.
///
/// Such a process has lost its hold, for instance because an operator broke it, and is about to
/// unlock the file.
pub(super) fn keep_if_locked_by_others(at: &Location) {
    if !is_locked_by_members(at) {
        keep_for_others(at);
    }
}

/// Empties the file, so that no process of leasehold removes it: flock(1) uses it too.
///
/// A file with another content, or with a second name, belongs to another program, and stays as it
/// is.
pub(super) fn keep_for_others(at: &Location) {
    let emptied = match at.open(FileType::RegularFile, OFlags::RDWR).map(File::from) {
        Ok(file) if has_content(&file) => ftruncate(&file, 0).map_err(OpenError::Kernel),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    // The owner of the file has not shared it. It is then removed once no process uses it.
    if let Err(error) = emptied {
        tracing::debug!(?error, path = %at.path().display(), "could not empty a lock file");
    }
}

/// Whether all processes that have the file locked use the store. False if that cannot be seen, and
/// if this process itself has it locked: only other processes are examined.
fn is_locked_by_members(at: &Location) -> bool {
    let holders = flock_holders(at);
    let members = Members::read(at.folder());
    let is_other_member = |pid: u32| pid != std::process::id() && members.has(pid);
    !holders.is_empty() && holders.iter().all(|holder| is_other_member(holder.pid))
}

/// The processes that have a file locked by flock(2), as far as this process may see them.
///
/// An unreadable table gives an empty list.
pub(super) fn flock_holders(at: &Location) -> Vec<ExternalHolder> {
    let Some(file) = flock_file(at) else {
        return Vec::new();
    };
    let Ok(locks) = lock_table() else {
        return Vec::new();
    };

    // While other locks come and go, a list that is longer than a page may have a lock twice.
    let lines = locks.lines();
    let pids: BTreeSet<u32> = lines.filter_map(|line| parse_holder(line, &file)).collect();
    pids.into_iter().map(external_holder).collect()
}

/// The processes that have a file locked, if another process has just been seen to have it locked.
///
/// A list may also leave out a lock, so it is read again.
pub(super) fn holders_of_locked(at: &Location) -> Vec<ExternalHolder> {
    let mut reads = (0..READS_MAX).map(|_| flock_holders(at));
    reads
        .find(|holders| !holders.is_empty())
        .unwrap_or_default()
}

/// A file as the kernel's list of locks names it.
pub(super) fn flock_file(at: &Location) -> Option<String> {
    let status = at.stat().ok()??;
    let major = major(status.st_dev);
    let minor = minor(status.st_dev);
    Some(format!("{major:02x}:{minor:02x}:{}", status.st_ino))
}

/// The process in a line such as `3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF`, if the line is
/// about this file. The line of a waiting process has an arrow after the number.
pub(super) fn parse_holder(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    (words.next()? == "FLOCK").then_some(())?;
    let pid = words.nth(2)?.parse().ok()?;
    (words.next()? == file).then_some(pid)
}

pub(super) fn external_holder(pid: u32) -> ExternalHolder {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ExternalHolder {
        pid,
        program: program.trim_end().to_owned(),
    }
}

/// Opens a file that leasehold made; `None` if there is none.
fn open_own(at: &Location) -> Result<Option<OpenFile>> {
    let file = match at.open(FileType::RegularFile, OFlags::RDONLY) {
        Ok(file) => File::from(file),
        Err(OpenError::Kernel(Errno::NOENT) | OpenError::Type(_) | OpenError::Linked) => {
            return Ok(None);
        }
        Err(error) => return Err(at.open_error(error, "open")),
    };
    if !has_content(&file) {
        return Ok(None);
    }
    OpenFile::inspect(file, at).map(Some)
}

fn has_content(file: &File) -> bool {
    let mut bytes = [0; CONTENT.len() + 1];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes[..len] == *CONTENT
}

/// Whether other processes use a file that this process has locked, as far as the kernel lists
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherUsers {
    None,
    /// At least one process waits for this process's lock.
    Waiting,
    /// The lock of this process is not listed, and so its waiters are not listed either.
    Unknown,
}

/// Returns whether processes wait for a file that this process has locked.
///
/// The kernel lists a lock and its waiters together. If a list is longer than a page and other locks
/// come and go, it may leave out a lock, so it is read again.
fn other_users(inode: u64) -> OtherUsers {
    let own = std::process::id();
    for _ in 0..READS_MAX {
        let Ok(table) = lock_table() else {
            return OtherUsers::Unknown;
        };
        match users_in(&table, inode, own) {
            OtherUsers::Unknown => {}
            known => return known,
        }
    }
    OtherUsers::Unknown
}

/// Reads the kernel's list of locks.
///
/// One system call lists the locks of one instant, as far as they fit into its buffer and a page.
/// `fs::read_to_string` would begin with a buffer for the first lock alone.
fn lock_table() -> io::Result<String> {
    let mut table = String::with_capacity(TABLE_SIZE);
    File::open("/proc/locks")?.read_to_string(&mut table)?;
    Ok(table)
}

/// The size of a buffer for a list of usual length.
const TABLE_SIZE: usize = 1 << 16;

/// Looks for a process's lock on a file, and for the waiters of that lock, in lines such as
/// `3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF`. A wait has an arrow after the number.
///
/// The file is found by its inode. The device numbers of Btrfs and overlay differ between stat(2)
/// and this table.
fn users_in(table: &str, inode: u64, own: u32) -> OtherUsers {
    let own = own.to_string();
    let mut is_listed = false;
    let mut is_waited_for = false;
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        match words.as_slice() {
            ["FLOCK", _, _, pid, file, ..] if *pid == own && is_inode(file, inode) => {
                is_listed = true;
            }
            // A file of another device may have the same inode. Then the lock file stays without
            // need.
            ["->", _, _, _, _, file, ..] if is_inode(file, inode) => is_waited_for = true,
            _ => {}
        }
    }

    match (is_listed, is_waited_for) {
        (false, _) => OtherUsers::Unknown,
        (true, true) => OtherUsers::Waiting,
        (true, false) => OtherUsers::None,
    }
}

/// Whether a file such as `fe:00:264` has this inode.
fn is_inode(file: &str, inode: u64) -> bool {
    let number = file.rsplit(':').next();
    number.is_some_and(|number| number.parse() == Ok(inode))
}

/// How often the table is read until it lists the lock of this process.
const READS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::Name;
    use crate::local_fs::Locality;
    use crate::stores::file::folder::Folder;
    use crate::test_inputs::altered_text;

    fn lock_path(folder: &tempfile::TempDir, name: &str) -> Location {
        let folder = Folder::open(folder.path(), Locality::Known, None).expect("opened");
        Location::lock(&Arc::new(folder), &Name::parse(name).expect("a good name"))
    }

    #[test]
    fn proc_locks_lines_are_parsed() {
        let pid = |line| parse_holder(line, "fe:00:264");
        assert_eq!(
            pid("3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF"),
            Some(4711)
        );
        assert_eq!(
            pid("3: -> FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF"),
            None
        );
        assert_eq!(pid("3: POSIX  ADVISORY  WRITE 4711 fe:00:264 0 EOF"), None);
        assert_eq!(pid("3: FLOCK  ADVISORY  READ 4711 fe:00:2640 0 EOF"), None);
        assert_eq!(pid(""), None);
    }

    #[test]
    fn own_flock_is_found_in_proc_locks() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = lock_path(&folder, "a");
        let file = File::create(at.path()).expect("created");
        assert_eq!(flock_holders(&at), []);

        file.lock().expect("the lock is free");
        let pids: Vec<u32> = holders_of_locked(&at)
            .iter()
            .map(|holder| holder.pid)
            .collect();
        assert_eq!(pids, [std::process::id()]);
    }

    /// The kernel's list is then longer than a page, and its pages are of different instants.
    #[test]
    fn holder_is_listed_once_while_other_locks_come_and_go() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = lock_path(&folder, "a");
        let file = File::create(at.path()).expect("created");
        file.lock().expect("the lock is free");

        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut others = VecDeque::new();
                while !is_done.load(Ordering::Relaxed) {
                    let other = tempfile::tempfile().expect("a temporary file");
                    other.lock().expect("the lock is free");
                    others.push_back(other);
                    others.drain(..others.len().saturating_sub(100));
                }
            });

            let mut counts = (0..500).map(|_| holders_of_locked(&at).len());
            let wrong = counts.find(|&count| count != 1);
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
    }

    #[test]
    fn waiters_for_own_lock_are_found_in_proc_locks() {
        const TABLE: &str = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:264 0 EOF\n\
            2: FLOCK  ADVISORY  READ 4711 fe:00:265 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 4712 00:2a:267 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 4711 00:2a:268 0 EOF\n\
            5: FLOCK  ADVISORY  WRITE 4711 fe:00:268 0 EOF\n\
            5: -> FLOCK  ADVISORY  WRITE 4712 fe:00:268 0 EOF\n\
            264: POSIX  ADVISORY  WRITE 4711 fe:00:266 0 264\n";
        assert_eq!(users_in(TABLE, 264, 4711), OtherUsers::Waiting);
        assert_eq!(users_in(TABLE, 264, 4712), OtherUsers::Unknown);
        assert_eq!(users_in(TABLE, 265, 4711), OtherUsers::None);
        assert_eq!(users_in(TABLE, 266, 4711), OtherUsers::Unknown);
        // The process has also locked a file of another device with this inode.
        assert_eq!(users_in(TABLE, 268, 4711), OtherUsers::Waiting);
    }

    #[test]
    fn file_of_another_program_keeps_its_content() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cases = [
            ("foreign", "4711\n".as_bytes(), "4711\n".as_bytes()),
            ("own", CONTENT, b""),
        ];
        for (name, content, kept) in cases {
            let at = lock_path(&folder, name);
            fs::write(at.path(), content).expect("written");
            keep_for_others(&at);
            assert_eq!(fs::read(at.path()).expect("it stays"), kept, "{name}");
        }

        let at = lock_path(&folder, "two");
        let path = at.path();
        fs::write(&path, CONTENT).expect("written");
        fs::hard_link(&path, folder.path().join("second name")).expect("linked");
        keep_for_others(&at);
        assert_eq!(fs::read(&path).expect("it stays"), CONTENT);
    }

    #[test]
    fn own_lock_without_waiter_has_no_other_users() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let inode = file.as_file().metadata().expect("inspected").ino();
        assert_eq!(other_users(inode), OtherUsers::Unknown, "it is not locked");

        file.as_file().lock().expect("the lock is free");
        assert_eq!(other_users(inode), OtherUsers::None);
    }

    /// flock(1) begins to wait while the remover has the file locked.
    #[test]
    fn waiter_that_arrives_during_removal_keeps_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = lock_path(&folder, "a");
        let file = open_or_make(&at).expect("made");
        file.file().lock().expect("the lock is free");

        let outsider = File::open(at.path()).expect("opened");
        let waiting = std::thread::spawn(move || outsider.lock());
        while other_users(file.inode()) != OtherUsers::Waiting {
            std::thread::yield_now();
        }
        let is_removed = remove_locked(&at, &file).expect("inspected");
        file.unlock();

        assert!(!is_removed);
        assert_eq!(fs::read(at.path()).expect("it stays"), b"", "forever");
        waiting.join().expect("no panic").expect("locked");
    }

    proptest! {
        #[test]
        fn any_line_of_the_kernel_is_parsed_or_ignored(
            line in altered_text(&[
                "3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF",
                "3: -> FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF",
            ]),
        ) {
            let _pid = parse_holder(&line, "fe:00:264");
        }
    }
}
