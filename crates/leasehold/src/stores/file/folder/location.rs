//! Files by the descriptor of their directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fsync, linkat, openat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

use super::directory::{Directory, LOOK, READ};
use super::object::{OpenError, look, open_checked};
use super::sharing::Sharing;
use crate::Result;
use crate::local_fs::io_error;

/// A file in a directory. It is opened through the directory's descriptor and shown by its path.
///
/// No operation follows a symbolic link, neither at the end of the path nor inside it.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    directory: Arc<Directory>,
    relative: PathBuf,
}

impl Location {
    pub(super) fn new(directory: Arc<Directory>, relative: PathBuf) -> Self {
        Self {
            directory,
            relative,
        }
    }

    /// Opens a regular file or a FIFO. An entry of another type, or with a second name, is refused.
    pub(crate) fn open(
        &self,
        file_type: FileType,
        flags: OFlags,
    ) -> std::result::Result<OwnedFd, OpenError> {
        for _ in 0..NAMING_TRIES {
            match self.in_parent(|parent, name| open_checked(parent, name, file_type, flags)) {
                // See `name`. A FIFO is renamed on all file systems.
                Err(OpenError::Linked) if file_type == FileType::RegularFile => {
                    std::thread::sleep(NAMING_PAUSE);
                }
                opened => return opened,
            }
        }
        Err(OpenError::Linked)
    }

    /// A descriptor of the entry itself, of any type. The entry is not opened.
    pub(crate) fn look(&self) -> rustix::io::Result<OwnedFd> {
        self.in_parent(look)
    }

    /// The status of the entry, which may be a symbolic link; `None` if the entry is missing.
    pub(crate) fn stat(&self) -> Result<Option<Stat>> {
        let status = self.in_parent(|parent, name| statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
        match status {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error(error, "inspect", &self.path())),
        }
    }

    /// Renames a file that was made under a temporary name to this name, unless this name is taken.
    pub(crate) fn name(&self, from: &Directory, pending: &str) -> rustix::io::Result<()> {
        self.in_parent(|parent, name| {
            match renameat_with(from, pending, parent, name, RenameFlags::NOREPLACE) {
                // Not all file systems can rename without replacing. There, the file has two names
                // for some microseconds.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    linkat(from, pending, parent, name, AtFlags::empty())?;
                    match unlinkat(from, pending, AtFlags::empty()) {
                        // Another process removed it, because the file has its name.
                        Err(Errno::NOENT) => Ok(()),
                        removed => removed,
                    }
                }
                renamed => renamed,
            }
        })
    }

    /// Removes the file. A missing file is not an error.
    pub(crate) fn remove(&self) -> rustix::io::Result<()> {
        match self.in_parent(|parent, name| unlinkat(parent, name, AtFlags::empty())) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    pub(crate) fn has_parents(&self) -> bool {
        self.parents().next().is_some()
    }

    /// Makes the directories that a long name needs.
    pub(crate) fn make_parent(&self, sharing: Sharing) -> Result<()> {
        let mut directory = None::<Directory>;
        for part in self.parents() {
            let outer = directory.as_ref().unwrap_or(&self.directory);
            directory = Some(outer.open_or_make_inside(part, sharing)?);
        }
        Ok(())
    }

    /// Removes the directories of a long name that have become empty, from the innermost outwards.
    pub(crate) fn remove_empty_parents(&self) {
        let mut inner = self.relative.as_path();
        while let Some(parent) = inner
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            let at = Self::new(Arc::clone(&self.directory), parent.to_owned());
            let removed = at.in_parent(|parent, name| unlinkat(parent, name, AtFlags::REMOVEDIR));
            // Another name uses it, or another user owns it.
            if removed.is_err() {
                return;
            }
            inner = parent;
        }
    }

    /// Makes a new name durable.
    pub(crate) fn sync_parent(&self) -> rustix::io::Result<()> {
        self.in_parent(|parent, _| fsync(openat(parent, ".", READ, Mode::empty())?))
    }

    /// The whole path, for messages and tables. Files are not opened by it.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(&self.relative)
    }

    /// Runs an operation on the last part of the path, in the directory of that part.
    ///
    /// The directories before the last part are opened one by one. In a folder that several users
    /// may write, another user can put a symbolic link in the place of one of them.
    fn in_parent<T, E: From<Errno>>(
        &self,
        operation: impl FnOnce(BorrowedFd<'_>, &OsStr) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut parent = None::<OwnedFd>;
        for part in self.parents() {
            let outer = parent.as_ref().map_or(self.directory.as_fd(), AsFd::as_fd);
            parent = Some(openat(outer, part, LOOK | OFlags::NOFOLLOW, Mode::empty())?);
        }

        let parent = parent.as_ref().map_or(self.directory.as_fd(), AsFd::as_fd);
        let name = self.relative.file_name();
        operation(parent, name.expect("a location has a name"))
    }

    fn parents(&self) -> impl Iterator<Item = &OsStr> {
        let parent = self.relative.parent();
        parent.into_iter().flat_map(Path::iter)
    }
}

/// How long a file with two names may still be getting its name. Only file systems that cannot
/// rename without replacing need that, so a file of another user is rarely waited for.
const NAMING_TRIES: u32 = 20;
const NAMING_PAUSE: Duration = Duration::from_millis(2);
