//! Removes a `NAME.lock`, if leasehold made it and no other process uses it.
//!
//! A process that has the removed file open could lock that file while another process locks a new
//! one. leasehold notices that, but flock(1) does not. So these files stay:
//!
//! - A file that leasehold did not make: flock(1), `touch` or a redirection of a shell makes an
//!   empty one. A redirection with `>` also empties a file that leasehold made.
//! - A file that a process outside the store has locked or waits for. leasehold empties it, so that
//!   it stays forever.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{FileType, FlockOperation, OFlags, flock, ftruncate};
use rustix::io::Errno;

use super::flock::flock_holders;
use super::folder::directory::Directory;
use super::folder::location::Location;
use super::folder::object::OpenError;
use super::folder::{is_at, open_error, status_of};
use super::housekeeping::removal_error;
use super::process::Members;
use crate::Result;
use crate::local_fs::io_error;

/// The content of a lock file that leasehold made.
pub(super) const CONTENT: &[u8] =
    b"leasehold made this file, and removes it when the lock is free.\n\
    To share the lock with flock(1), empty the file. It then stays.\n";

pub(super) enum LockFileRemoval {
    Removed,
    /// The file is missing, or leasehold did not make it.
    NotOurs,
    /// Another process uses it.
    InUse,
}

/// Removes the lock file of a free name. The caller has the queue file locked.
pub(super) fn remove(at: &Location, members: &Arc<Directory>) -> Result<LockFileRemoval> {
    let Some(file) = open(at)? else {
        return Ok(LockFileRemoval::NotOurs);
    };
    if !has_content(&file) {
        return Ok(LockFileRemoval::NotOurs);
    }

    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            keep_if_locked_by_others(at, members);
            return Ok(LockFileRemoval::InUse);
        }
        Err(Errno::INTR) => return Ok(LockFileRemoval::InUse),
        Err(error) => return Err(io_error(error, "lock", &at.path())),
    }
    let removal = remove_locked(at, &file);
    // If unlocking fails, closing is all that is left to do.
    let _ = flock(&file, FlockOperation::Unlock);
    removal
}

fn remove_locked(at: &Location, file: &File) -> Result<LockFileRemoval> {
    let status = status_of(file, at)?;
    if !is_at(&status, at)? {
        return Ok(LockFileRemoval::InUse);
    }
    match other_users(status.ino()) {
        OtherUsers::None => {}
        OtherUsers::Unknown => return Ok(LockFileRemoval::InUse),
        OtherUsers::Waiting => {
            keep_for_others(at);
            return Ok(LockFileRemoval::InUse);
        }
    }

    at.remove()
        .map_err(|error| removal_error(error, &at.path()))?;
    Ok(LockFileRemoval::Removed)
}

/// Whether there is a `NAME.lock` that leasehold made.
pub(super) fn is_made_by_leasehold(at: &Location) -> Result<bool> {
    Ok(open(at)?.is_some_and(|file| has_content(&file)))
}

/// Empties a locked file, unless only processes of the store have it locked.
///
/// Such a process has lost its hold, for instance because an operator broke it, and is about to
/// unlock the file.
pub(super) fn keep_if_locked_by_others(at: &Location, members: &Arc<Directory>) {
    if !is_locked_by_members(at, members) {
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
fn is_locked_by_members(at: &Location, members: &Arc<Directory>) -> bool {
    let holders = flock_holders(at);
    let members = Members::read(members);
    let is_other_member = |pid: u32| pid != std::process::id() && members.has(pid);
    !holders.is_empty() && holders.iter().all(|holder| is_other_member(holder.pid))
}

/// Opens a file that leasehold may have made; `None` if it certainly has not.
fn open(at: &Location) -> Result<Option<File>> {
    match at.open(FileType::RegularFile, OFlags::RDONLY) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(OpenError::Kernel(Errno::NOENT) | OpenError::Type(_) | OpenError::Linked) => Ok(None),
        Err(error) => Err(open_error(error, "open", at)),
    }
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
/// The kernel lists a lock and its waiters together. While other locks come and go, it may leave
/// out a lock, so the list is read again.
fn other_users(inode: u64) -> OtherUsers {
    let own = std::process::id();
    for _ in 0..READS_MAX {
        let Ok(table) = fs::read_to_string("/proc/locks") else {
            return OtherUsers::Unknown;
        };
        match users_in(&table, inode, own) {
            OtherUsers::Unknown => {}
            known => return known,
        }
    }
    OtherUsers::Unknown
}

/// Looks for a process's lock on a file, and for the waiters of that lock, in lines such as
/// `3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF`. A wait has an arrow after the number.
///
/// The file is found by its inode. The device numbers of Btrfs and overlay differ between stat(2)
/// and this table.
fn users_in(table: &str, inode: u64, own: u32) -> OtherUsers {
    let own = own.to_string();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().skip(1).collect())
        .collect();

    let is_own = |words: &Vec<&str>| {
        matches!(words.as_slice(), ["FLOCK", _, _, pid, file, ..]
            if *pid == own && is_inode(file, inode))
    };
    if !lines.iter().any(is_own) {
        return OtherUsers::Unknown;
    }

    // A file of another device may have the same inode. Then the lock file stays without need.
    let is_wait = |words: &Vec<&str>| match words.as_slice() {
        ["->", _, _, _, _, file, ..] => is_inode(file, inode),
        _ => false,
    };
    if lines.iter().any(is_wait) {
        OtherUsers::Waiting
    } else {
        OtherUsers::None
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
    use super::*;
    use crate::local_fs::Locality;

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
        let directory = Directory::open_or_make(folder.path(), Locality::Known, None);
        let directory = Arc::new(directory.expect("opened"));
        let cases = [
            ("foreign.lock", "4711\n".as_bytes(), "4711\n".as_bytes()),
            ("own.lock", CONTENT, b""),
        ];
        for (file, content, kept) in cases {
            let path = folder.path().join(file);
            fs::write(&path, content).expect("written");
            keep_for_others(&directory.file(file));
            assert_eq!(fs::read(&path).expect("it stays"), kept, "{file}");
        }

        let path = folder.path().join("two.lock");
        fs::write(&path, CONTENT).expect("written");
        fs::hard_link(&path, folder.path().join("second name")).expect("linked");
        keep_for_others(&directory.file("two.lock"));
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
        let path = folder.path().join("a.lock");
        fs::write(&path, CONTENT).expect("written");
        let directory = Directory::open_or_make(folder.path(), Locality::Known, None);
        let at = Arc::new(directory.expect("opened")).file("a.lock");
        let file = open(&at).expect("opened").expect("it exists");
        file.lock().expect("the lock is free");

        let outsider = File::open(&path).expect("opened");
        let waiting = std::thread::spawn(move || outsider.lock());
        let inode = file.metadata().expect("inspected").ino();
        while other_users(inode) != OtherUsers::Waiting {
            std::thread::yield_now();
        }
        let removal = remove_locked(&at, &file).expect("inspected");
        file.unlock().expect("it was locked");

        assert!(matches!(removal, LockFileRemoval::InUse));
        assert_eq!(fs::read(&path).expect("it stays"), b"", "it stays forever");
        waiting.join().expect("no panic").expect("locked");
    }
}
