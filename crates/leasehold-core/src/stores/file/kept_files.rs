//! Files that stay open between two uses of a name.
//!
//! Opening, inspecting and closing a file takes half of the system calls of an uncontended acquire.
//! So a process keeps the files of the names that it used last. A kept file may have been removed
//! or replaced meanwhile: then it has no name left, which its user asks after locking it. A file
//! that was renamed still has one, so once a second its user also compares it with the path.
//!
//! flock(2) does not exclude two users of one open file. So a file is taken out while it is in use.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::folder::location::OpenFile;
use crate::Name;

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
        let is_kept = files.iter().any(|(kept, _)| kept == name);
        files.push_back((name.clone(), file));
        let surplus = if is_kept {
            files.pop_back()
        } else if files.len() > FILES_MAX {
            files.pop_front()
        } else {
            None
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
