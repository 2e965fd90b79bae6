//! The folder of a file store, and its files.
//!
//! Each lock has two files. flock(1) can also lock `NAME.lock`. `NAME.queue` has the holders and
//! the waiters. The folder `.members` has one FIFO for each process. `.counter` counts the tokens
//! that names have taken. The files of a name exist while it is in use, and for a moment longer:
//! see [`housekeeping`](super::housekeeping). Only `NAME.record`, with the completed jobs of a name,
//! is kept for weeks.
//!
//! The folder's mode and group decide who may use the files: see [`sharing`].

mod directory;
mod listing;
pub(super) mod location;
pub(super) mod names;
pub(super) mod object;
pub(super) mod sharing;
mod url_path;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::local_fs::{Locality, io_error};
use crate::{Name, Result};
use object::{ObjectKind, look};
use sharing::{Access, Sharing};

pub(super) use directory::is_abandoned;
pub(super) use url_path::path_of_url;

/// The open folder of a file store.
///
/// Its files are reached through its descriptors. If a part of its path is renamed, they are still
/// those of the folder that was opened and checked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    locality: Locality,
    stated: Option<Access>,
    root: OwnedFd,
    members: OwnedFd,
}

impl Folder {
    /// Opens the folder, and makes it if it is missing. A stated access takes precedence over the
    /// access that the folder's mode gives.
    pub(super) fn open(path: &Path, locality: Locality, stated: Option<Access>) -> Result<Self> {
        let path = std::path::absolute(path)
            .map_err(|error| io_error(error, "resolve the path of the folder", path))?;
        let root = directory::open_or_make(&path, locality, stated)?;

        // All names need `.members` and the counter, so a stated mode does not concern them.
        let sharing = sharing_of(&root, &path, None)?;
        let members = directory::open_or_make_inside(
            &root,
            OsStr::new(MEMBERS),
            &path.join(MEMBERS),
            sharing,
        )?;

        repair_counter(&root, &path.join(COUNTER), sharing)?;
        Ok(Self {
            path,
            locality,
            stated,
            root,
            members,
        })
    }

    /// Opens the folder that is at the path now, or makes it. This one may have been deleted or
    /// replaced.
    pub(super) fn open_again(&self) -> Result<Self> {
        Self::open(&self.path, self.locality, self.stated)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn members(&self) -> &OwnedFd {
        &self.members
    }

    /// The mode and the group that files in the folder get now.
    pub(super) fn sharing(&self) -> Result<Sharing> {
        sharing_of(&self.root, &self.path, self.stated)
    }

    /// Every name that has a record, sorted.
    pub(super) fn names_of_records(&self) -> Result<Vec<Name>> {
        listing::names(&self.root, &self.path, &[RECORD])
    }

    /// Every name that has any file but a record, sorted.
    pub(super) fn names_of_files(&self) -> Result<Vec<Name>> {
        listing::names(&self.root, &self.path, &[QUEUE, LOCK])
    }

    /// Removes what killed processes have begun to make.
    pub(super) fn remove_abandoned(&self) {
        listing::remove_abandoned(&self.root, &self.path, names::PIECES_MAX);
    }
}

/// Gives the token counter its new mode, if the mode of the folder was changed later.
fn repair_counter(root: &OwnedFd, path: &Path, sharing: Sharing) -> Result<()> {
    match look(root.as_fd(), OsStr::new(COUNTER)) {
        Ok(file) => sharing.repair(&file, ObjectKind::Counter, path),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io_error(error, "open the token counter", path)),
    }
}

fn sharing_of(root: &OwnedFd, path: &Path, stated: Option<Access>) -> Result<Sharing> {
    let status = fstat(root).map_err(|error| io_error(error, "inspect the folder", path))?;
    Ok(Sharing::of(&status, stated))
}

/// The folder with one FIFO for each process that uses the store.
const MEMBERS: &str = ".members";

/// The token counter of the folder.
const COUNTER: &str = ".counter";

const LOCK: &str = ".lock";
const RECORD: &str = ".record";
const QUEUE: &str = ".queue";
