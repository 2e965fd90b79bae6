//! The folder of a file store, and its files.
//!
//! Each lock has two files. `NAME.lock` is the one that users of flock(1) lock too. `NAME.queue`
//! has the holders and the waiters. `.members` has one FIFO for each process.
//!
//! The files of a name stay when the lock is free. If they were deleted, one process could lock the
//! deleted file and another the new one, and both would hold.

pub(super) mod directory;
mod names;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fchmod, fstat,
    futimens, linkat, openat, unlinkat,
};
use rustix::io::Errno;

use crate::local_fs::{Locality, io_error};
use crate::{ClaimId, Error, Name, Result};
use directory::{Directory, Location};
use names::Piece;

/// The folder of a file store. It is opened again when it was deleted or replaced.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    locality: Locality,
    opened: RwLock<Opened>,
}

impl Folder {
    /// Opens the folder, and makes it if it is missing.
    pub(super) fn open(path: &Path, locality: Locality) -> Result<Self> {
        let path = std::path::absolute(path)
            .map_err(|error| io_error(error, "resolve the path of the folder", path))?;
        let opened = Opened::open(&path, locality)?;
        Ok(Self {
            path,
            locality,
            opened: RwLock::new(opened),
        })
    }

    /// Opens the folder that has the path now, or makes it. The earlier one may have been deleted
    /// or replaced.
    pub(super) fn open_again(&self) -> Result<()> {
        let opened = Opened::open(&self.path, self.locality)?;
        *self.opened.write() = opened;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn members(&self) -> Arc<Directory> {
        Arc::clone(&self.opened.read().members)
    }

    pub(super) fn lock_path(&self, name: &Name) -> Location {
        self.location(name, LOCK)
    }

    pub(super) fn queue_path(&self, name: &Name) -> Location {
        self.location(name, QUEUE)
    }

    fn location(&self, name: &Name, ending: &str) -> Location {
        let relative = names::path_of(Path::new(""), name, ending);
        self.opened.read().root.file(relative)
    }

    /// Opens a file, and makes it if it is missing.
    pub(super) fn open_or_make_file(
        &self,
        at: &Location,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        loop {
            match at.open(flags) {
                Err(Errno::NOENT) => self.make_file(at)?,
                opened => return opened,
            }
        }
    }

    /// Makes an empty file, which gets its name only when its mode is right. From then on another
    /// process may open it, and this process may be killed at any moment.
    #[cold]
    fn make_file(&self, at: &Location) -> rustix::io::Result<()> {
        let members = self.members();
        let pending = format!("{PENDING}{}", ClaimId::draw());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&members, &pending, flags, FILE_MODE)?;

        let directory = at.directory();
        let link = || {
            linkat(
                &members,
                &pending,
                directory,
                at.relative(),
                AtFlags::empty(),
            )
        };
        let named = fchmod(&file, FILE_MODE).and_then(|()| link());
        unlinkat(&members, &pending, AtFlags::empty())?;

        match named {
            // Another process made the file at the same moment.
            Err(Errno::EXIST) => Ok(()),
            named => named,
        }
    }

    /// Every name that has a queue file, sorted.
    pub(super) fn names(&self) -> Result<Vec<Name>> {
        let root = Arc::clone(&self.opened.read().root);
        let mut names = Vec::new();
        collect_names(&root, "", &mut names)?;
        names.sort_unstable();
        Ok(names)
    }
}

/// Both directories as they were when they were opened last.
#[derive(Clone, Debug)]
struct Opened {
    root: Arc<Directory>,
    members: Arc<Directory>,
}

impl Opened {
    fn open(path: &Path, locality: Locality) -> Result<Self> {
        let root = Directory::open_or_make(path, locality)?;
        let members = root.open_or_make_inside(OsStr::new(MEMBERS))?;
        Ok(Self {
            root: Arc::new(root),
            members: Arc::new(members),
        })
    }
}

/// The path that a `file:` URL names after the colon. An empty one is the user's state folder.
pub(super) fn path_of_url(path: &str) -> Result<PathBuf> {
    let path = match path.strip_prefix("//localhost/") {
        Some(_) => &path["//localhost".len()..],
        None => path,
    };
    if path.is_empty() {
        return state_folder();
    }
    if path.starts_with('~') {
        let message = "only a shell expands ~, and only at the beginning of a word";
        return Err(Error::invalid(message.to_owned())
            .help("write the whole path, such as file:/home/user/folder"));
    }

    match path.strip_prefix("//") {
        None if path.starts_with('/') => Ok(PathBuf::from(path)),
        None => Err(relative_path(path)),
        Some(absolute) if absolute.starts_with('/') => Ok(PathBuf::from(absolute)),
        Some(host) => {
            let host = host.split('/').next().unwrap_or_default();
            let message =
                format!("file: is a folder of this machine, and {host:?} reads as another");
            Err(Error::invalid(message).help("write file:/some/folder"))
        }
    }
}

/// The error of a path that would be another folder in each working directory.
fn relative_path(path: &str) -> Error {
    let message = format!("the folder {path:?} depends on the working directory");
    let absolute = std::path::absolute(path).map_or_else(
        |_| "/some/folder".to_owned(),
        |absolute| absolute.display().to_string(),
    );
    Error::invalid(message).help(format!("write the whole path, such as file:{absolute}"))
}

/// The user's state folder.
fn state_folder() -> Result<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let in_home = || absolute("HOME").map(|home| home.join(".local/state"));

    let state = absolute("XDG_STATE_HOME").or_else(in_home).ok_or_else(|| {
        Error::invalid("neither XDG_STATE_HOME nor HOME names the folder of this user's files")
            .help("name a folder: file:/some/folder")
    })?;
    Ok(state.join("leasehold"))
}

/// Sets the times of a file in use to now, unless they are recent.
///
/// Cleaners of temporary folders delete files with old times.
pub(super) fn touch(file: impl AsFd) {
    let Ok(status) = fstat(&file) else { return };
    let oldest = status.st_mtime.min(status.st_atime).try_into().unwrap_or(0);
    let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(oldest));
    if !age.is_ok_and(|age| age > RECENT) {
        return;
    }

    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    // Only the owner, or a user who may write the file, may do this. The lock is held all the same.
    let _ = futimens(file, &times);
}

/// Collects the names below a folder. `prefix` is the encoded part of the names above it.
fn collect_names(folder: &Directory, prefix: &str, names: &mut Vec<Name>) -> Result<()> {
    let failed = |error| io_error(error, "list the folder", folder.path());
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A file of another program may have any name.
        let Ok(file) = entry.file_name().to_str() else {
            continue;
        };

        match names::piece_of(file, QUEUE) {
            Some(Piece::Continued(piece)) if may_be_directory(&entry) => {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if let Some(inner) = folder.read_inside(name)? {
                    collect_names(&inner, &format!("{prefix}{piece}"), names)?;
                }
            }
            Some(Piece::Last(piece)) => names.extend(names::decode(&format!("{prefix}{piece}"))),
            Some(Piece::Continued(_)) | None => {}
        }
    }
    Ok(())
}

/// Whether an entry is a directory. Some file systems do not report the types of their entries.
fn may_be_directory(entry: &DirEntry) -> bool {
    matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
}

/// The error for a `NAME.lock` or `NAME.queue` that is not a regular file.
#[cold]
pub(super) fn not_a_file(at: &Location) -> Error {
    let message = format!("{} is not a regular file", at.path().display());
    Error::damaged(message).help("remove it")
}

/// Whether an open file with this status is still the one at its path.
pub(super) fn is_at(status: &Metadata, at: &Location) -> Result<bool> {
    let present = at.stat()?;
    Ok(present
        .is_some_and(|present| status.dev() == present.st_dev && status.ino() == present.st_ino))
}

/// Reads the status of an open file.
pub(super) fn status_of(file: &File, at: &Location) -> Result<Metadata> {
    file.metadata()
        .map_err(|error| io_error(error, "inspect", &at.path()))
}

/// Only its owner may read or write a file.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Begins the name, in `.members`, of a file that is still being made.
pub(super) const PENDING: &str = "new-";

/// The folder with one FIFO for each process that uses the store.
const MEMBERS: &str = ".members";
const LOCK: &str = ".lock";
const QUEUE: &str = ".queue";

/// Cleaners count in hours and days, so the times of a file that is younger than this are kept.
const RECENT: Duration = Duration::from_secs(60);
