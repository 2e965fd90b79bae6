//! Files that stay open between two uses of a name.
//!
//! Opening, inspecting and closing a file takes half of the system calls of an uncontended acquire.
//! So a process keeps the files of the names that it used last. A kept file may have been removed
//! or replaced meanwhile. Its user compares it with the path after locking it, as it does with a
//! file that it has just opened.
//!
//! flock(2) does not exclude two users of one open file. So a file is taken out while it is in use.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Stat, flock};
use rustix::io::{Errno, retry_on_intr};

use super::folder::Location;
use crate::{Name, Result};

/// An open regular file, with its identity on the file system.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    device: u64,
    inode: u64,
}

impl OpenFile {
    /// Inspects a file that was just opened.
    pub(super) fn inspect(file: File, at: &Location) -> Result<Self> {
        let status = file
            .metadata()
            .map_err(|error| at.io_error(error, "inspect"))?;
        Ok(Self {
            device: status.dev(),
            inode: status.ino(),
            file,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// Locks the file by flock(2), and returns whether it is locked. An operation that may block
    /// sleeps until it is.
    pub(super) fn lock(&self, operation: FlockOperation, at: &Location) -> Result<bool> {
        match retry_on_intr(|| flock(&self.file, operation)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(at.io_error(error, "lock")),
        }
    }

    /// Unlocks the file. Closing alone would not do that if another process inherited the file.
    pub(super) fn unlock(&self) {
        // Unlocking fails only on an invalid descriptor, and this one is open.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// The present status of the file; `None` if it is no longer at its path.
    pub(super) fn status_at(&self, at: &Location) -> Result<Option<Stat>> {
        let status = at.stat()?;
        Ok(status.filter(|present| self.device == present.st_dev && self.inode == present.st_ino))
    }
}

/// The open files of the names that were used last. None of them is in use.
#[derive(Debug, Default)]
pub(super) struct KeptFiles(Mutex<VecDeque<(Name, OpenFile)>>);

impl KeptFiles {
    pub(super) fn take(&self, name: &Name) -> Option<OpenFile> {
        let mut files = self.0.lock();
        let at = files.iter().rposition(|(kept, _)| kept == name)?;
        files.remove(at).map(|(_, file)| file)
    }

    /// Keeps one file of a name, and closes the one that was not used for longest if there are too
    /// many.
    pub(super) fn keep(&self, name: &Name, file: OpenFile) {
        let mut files = self.0.lock();
        // Several claims of one name may have used files at the same time.
        let surplus = if files.iter().any(|(kept, _)| kept == name) {
            Some(file)
        } else {
            files.push_back((name.clone(), file));
            let is_over = files.len() > FILES_MAX;
            is_over
                .then(|| files.pop_front())
                .flatten()
                .map(|(_, file)| file)
        };

        // Closing a file takes a system call, and other threads wait for the lock.
        drop(files);
        drop(surplus);
    }

    /// Closes the files of a name.
    pub(super) fn close(&self, name: &Name) {
        self.0.lock().retain(|(kept, _)| kept != name);
    }
}

/// How many files of each kind stay open. A process may open a thousand files by default.
pub(super) const FILES_MAX: usize = 32;
