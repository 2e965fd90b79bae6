//! `NAME.lock` itself: its flock(2) and the locks of flock(1) and other tools exclude each other.

use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, flock};

use super::folder::location::{Location, OpenFile};
use super::folder::object::touch;
use super::kept_files::KeptFiles;
use super::lock_file;
use crate::{Name, Result, Share};

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
    ///
    /// The file is compared with the path after it is locked. A kept file may have been removed
    /// long ago, with the other files of a free name, and a user may remove any file at any time.
    /// The lock would then be on a file without a name, while flock(1) makes `NAME.lock` again and
    /// locks the new one, so that both hold. No leasehold process removes the file after the
    /// comparison: a removal needs an empty queue under its lock, and locks this file too.
    pub(super) fn acquire(
        kept: &KeptFiles,
        name: &Name,
        at: &Location,
        mode: FlockMode,
    ) -> Result<Option<Self>> {
        loop {
            let file = match kept.take(name) {
                Some(file) => file,
                None => lock_file::open_or_make(at)?,
            };
            if !file.lock(mode.nonblocking(), at)? {
                lock_file::keep_if_locked_by_others(at);
                return Ok(None);
            }

            let guard = Self::of_locked(file, mode);
            if guard.serves(at)? {
                return Ok(Some(guard));
            }
        }
    }

    pub(super) fn of_locked(file: OpenFile, mode: FlockMode) -> Self {
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
            file.unlock();
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
            .map_err(|error| at.io_error(error, "keep open"))?;
        Ok(file.into())
    }

    /// Keeps the times of the file recent, so that cleaners do not delete it.
    pub(super) fn touch(&self) {
        touch(self.locked().file());
    }

    /// Lets others share the lock. The kernel converts it without a gap.
    ///
    /// The manual page of flock(2) does not promise that, but Linux replaces the one lock by the
    /// other in one step. A conversion that meets another lock fails, and the former lock is gone.
    /// That cannot happen here: as long as the file was locked exclusively, nobody else had it
    /// locked.
    pub(super) fn downgrade(&mut self, at: &Location) -> Result<()> {
        flock(self.locked().file(), FlockMode::Shared.nonblocking())
            .map_err(|error| at.io_error(error, "share"))?;
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

    pub(super) fn blocking(self) -> FlockOperation {
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
