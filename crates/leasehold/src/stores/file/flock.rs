//! `NAME.lock` itself: its flock(2) and the locks of flock(1) and other tools exclude each other.

mod waiters;

use std::fs::{self, File};
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;

use super::folder::location::Location;
use super::folder::{Folder, touch};
use super::kept_files::{KeptFiles, OpenFile};
use super::lock_file;
use crate::local_fs::io_error;
use crate::{ExternalHolder, Name, Result, Share};

pub(super) use waiters::FlockWaiters;

/// The locked file. Dropping it unlocks the file, even if another process inherited the descriptor.
#[derive(Debug)]
pub(super) struct FlockGuard {
    /// `None` once the file was unlocked.
    file: Option<OpenFile>,
    mode: FlockMode,
    /// Whether a process that outlives the hold may have the file open too.
    is_inherited: bool,
}

impl FlockGuard {
    /// Locks the file without waiting; `None` if a process outside the queue has it locked.
    pub(super) fn acquire(
        folder: &Folder,
        kept: &KeptFiles,
        name: &Name,
        mode: FlockMode,
    ) -> Result<Option<Self>> {
        let at = folder.lock_path(name);
        loop {
            let file = match kept.take(name) {
                Some(file) => file,
                None => open_lock_file(folder, &at)?,
            };
            match flock(file.file(), mode.nonblocking()) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    lock_file::keep_if_locked_by_others(&at, &folder.members());
                    return Ok(None);
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(io_error(error, "lock", &at.path())),
            }
            let guard = Self::of_locked(file, mode);
            if guard.serves(&at)? {
                return Ok(Some(guard));
            }
        }
    }

    fn of_locked(file: OpenFile, mode: FlockMode) -> Self {
        Self {
            file: Some(file),
            mode,
            is_inherited: false,
        }
    }

    /// Unlocks the file, and keeps it open for the next hold of this process.
    ///
    /// A file that another process inherited is closed. If that process kept a later hold's file
    /// open, the lock would outlive the holder.
    pub(super) fn release(mut self, kept: &KeptFiles, name: &Name) {
        self.unlock();
        if !self.is_inherited
            && let Some(file) = self.file.take()
        {
            kept.keep(name, file);
        }
    }

    /// Whether the locked file is still the file at the path, and not one that was deleted.
    pub(super) fn serves(&self, at: &Location) -> Result<bool> {
        Ok(self.locked().status_at(at)?.is_some())
    }

    fn locked(&self) -> &OpenFile {
        self.file.as_ref().expect("only a release takes the file")
    }

    fn unlock(&self) {
        if let Some(file) = &self.file {
            // Unlocking fails only on an invalid descriptor, and this one is open.
            let _ = flock(file.file(), FlockOperation::Unlock);
        }
    }

    pub(super) fn satisfies(&self, mode: FlockMode) -> bool {
        self.mode == mode
    }

    /// A descriptor that keeps the file locked after this process ends.
    pub(super) fn inheritable_fd(&mut self, at: &Location) -> Result<OwnedFd> {
        self.is_inherited = true;
        let file = self
            .locked()
            .file()
            .try_clone()
            .map_err(|error| io_error(error, "keep open", &at.path()))?;
        Ok(file.into())
    }

    /// Keeps the times of the file recent, so that cleaners do not delete it.
    pub(super) fn touch(&self) {
        touch(self.locked().file());
    }

    /// Lets others share the lock. The kernel converts it without a gap.
    pub(super) fn downgrade(&mut self, at: &Location) -> Result<()> {
        flock(self.locked().file(), FlockMode::Shared.nonblocking())
            .map_err(|error| io_error(error, "share", &at.path()))?;
        self.mode = FlockMode::Shared;
        Ok(())
    }
}

impl Drop for FlockGuard {
    fn drop(&mut self) {
        self.unlock();
    }
}

/// The mode in which the file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FlockMode {
    /// As `flock -x`, for a claim that takes the whole capacity.
    Exclusive,
    /// As `flock -s`, for readers and slots.
    Shared,
}

impl FlockMode {
    pub(super) fn of(share: Share) -> Self {
        if share.is_whole() {
            Self::Exclusive
        } else {
            Self::Shared
        }
    }

    fn blocking(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::LockExclusive,
            Self::Shared => FlockOperation::LockShared,
        }
    }

    fn nonblocking(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Self::Shared => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// The processes that have a file locked by flock(2), as far as this process may see them.
///
/// The list is for people. No decision depends on it, so an unreadable table gives an empty list.
pub(super) fn flock_holders(at: &Location) -> Vec<ExternalHolder> {
    let Ok(Some(status)) = at.stat() else {
        return Vec::new();
    };
    let Ok(locks) = fs::read_to_string("/proc/locks") else {
        return Vec::new();
    };

    let major = major(status.st_dev);
    let minor = minor(status.st_dev);
    let file = format!("{major:02x}:{minor:02x}:{}", status.st_ino);
    locks
        .lines()
        .filter_map(|line| parse_holder(line, &file))
        .map(external_holder)
        .collect()
}

/// Opens the lock file, and makes it if it is missing.
///
/// A regular file that another user or program made is accepted.
fn open_lock_file(folder: &Folder, at: &Location) -> Result<OpenFile> {
    let opened = folder.open_or_make_file(at, OFlags::RDONLY, lock_file::CONTENT, "open")?;
    OpenFile::inspect(File::from(opened), at)
}

/// The process in a line such as `3: FLOCK  ADVISORY  WRITE 4711 fe:00:264 0 EOF`, if the line is
/// about this file. The line of a waiting process has an arrow after the number.
pub(super) fn parse_holder(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    (words.next()? == "FLOCK").then_some(())?;
    let pid = words.nth(2)?.parse().ok()?;
    (words.next()? == file).then_some(pid)
}

fn external_holder(pid: u32) -> ExternalHolder {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ExternalHolder {
        pid,
        program: program.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::test_inputs::altered_text;
    use proptest::prelude::*;
    use std::sync::Arc;

    use super::super::folder::directory::Directory;
    use super::*;
    use crate::local_fs::Locality;

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
        let file = File::create(folder.path().join("a.lock")).expect("created");
        let directory =
            Directory::open_or_make(folder.path(), Locality::Known, None).expect("opened");
        let at = Arc::new(directory).file("a.lock");

        assert_eq!(flock_holders(&at), []);

        file.lock().expect("the lock is free");
        let pids: Vec<u32> = flock_holders(&at).iter().map(|holder| holder.pid).collect();
        assert_eq!(pids, [std::process::id()]);
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
