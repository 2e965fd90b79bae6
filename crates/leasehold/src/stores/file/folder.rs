//! The folder of a file store, and its files.
//!
//! Each lock has two files. flock(1) can also lock `NAME.lock`. `NAME.queue` has the holders and
//! the waiters. The folder `.members` has one FIFO for each process. `.counter` counts the tokens
//! that names have taken. The files of a name exist while it is in use, and for a moment longer:
//! see [`housekeeping`](super::housekeeping).
//!
//! The folder's mode and group decide who may use the files: see [`sharing`].

pub(super) mod directory;
mod listing;
pub(super) mod location;
pub(super) mod names;
pub(super) mod object;
pub(super) mod sharing;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fstat, futimens, openat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::local_fs::{Locality, io_error};
use crate::{ClaimId, Error, Name, Result};
use directory::Directory;
use location::Location;
use object::{ObjectKind, OpenError};
use sharing::{Access, Sharing};

/// The folder of a file store. It is opened again after it was deleted or replaced.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    locality: Locality,
    stated: Option<Access>,
    opened: RwLock<Opened>,
}

impl Folder {
    /// Opens the folder, and makes it if it is missing. A stated access takes precedence over the
    /// access that the folder's mode gives.
    pub(super) fn open(path: &Path, locality: Locality, stated: Option<Access>) -> Result<Self> {
        let path = std::path::absolute(path)
            .map_err(|error| io_error(error, "resolve the path of the folder", path))?;
        let opened = Opened::open(&path, locality, stated)?;
        Ok(Self {
            path,
            locality,
            stated,
            opened: RwLock::new(opened),
        })
    }

    /// Opens the folder that is at the path now, or makes it. The folder that was opened before may
    /// have been deleted or replaced.
    pub(super) fn open_again(&self) -> Result<()> {
        let opened = Opened::open(&self.path, self.locality, self.stated)?;
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

    /// The token counter of the folder.
    pub(super) fn counter_path(&self) -> Location {
        self.opened.read().root.file(COUNTER)
    }

    fn location(&self, name: &Name, ending: &str) -> Location {
        let relative = names::path_of(Path::new(""), name, ending);
        self.opened.read().root.file(relative)
    }

    /// The mode and the group that files in the folder get now.
    pub(super) fn sharing(&self) -> Result<Sharing> {
        let root = Arc::clone(&self.opened.read().root);
        sharing_of(&root, self.stated)
    }

    /// Opens a file. A missing file is made with the given content. `action` is for errors, such as
    /// "open the queue file".
    pub(super) fn open_or_make_file(
        &self,
        at: &Location,
        flags: OFlags,
        content: &[u8],
        action: &str,
    ) -> Result<OwnedFd> {
        loop {
            match at.open(FileType::RegularFile, flags) {
                Err(OpenError::Kernel(Errno::NOENT)) => {
                    self.make_file(at, content, self.sharing()?)?;
                }
                opened => return opened.map_err(|error| open_error(error, action, at)),
            }
        }
    }

    /// Opens the token counter, and makes it if it is missing.
    ///
    /// All names need it, so the folder alone decides who may use it.
    pub(super) fn open_or_make_counter(&self, at: &Location, flags: OFlags) -> Result<OwnedFd> {
        loop {
            match at.open(FileType::RegularFile, flags) {
                Err(OpenError::Kernel(Errno::NOENT)) => {
                    let root = Arc::clone(&self.opened.read().root);
                    self.make_file(at, b"", sharing_of(&root, None)?)?;
                }
                opened => {
                    return opened.map_err(|error| open_error(error, "open the token counter", at));
                }
            }
        }
    }

    /// Makes a file, which gets its name only when its mode is right. Another process may open the
    /// file as soon as it has the name, and this process may be killed at any moment.
    #[cold]
    fn make_file(&self, at: &Location, content: &[u8], sharing: Sharing) -> Result<()> {
        at.make_parent(sharing)?;

        let members = self.members();
        let pending = format!("{PENDING}{}", ClaimId::draw());
        let failed = |error| io_error(error, "make", &at.path());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&members, &pending, flags, FILE_MODE).map_err(failed)?;

        let named = complete_file(&file, content, sharing, at)
            .and_then(|()| name_file(at, &members, &pending));
        if named.is_err() {
            // The first error is the one to report.
            let _ = unlinkat(&members, &pending, AtFlags::empty());
        }
        named
    }

    /// Every name that has a queue file, sorted.
    pub(super) fn names(&self) -> Result<Vec<Name>> {
        let root = Arc::clone(&self.opened.read().root);
        listing::names(&root, &[QUEUE])
    }

    /// Every name that has any file, sorted.
    pub(super) fn names_of_files(&self) -> Result<Vec<Name>> {
        let root = Arc::clone(&self.opened.read().root);
        listing::names(&root, &[QUEUE, LOCK])
    }

    /// Removes what killed processes have begun to make.
    pub(super) fn remove_abandoned(&self) {
        let root = Arc::clone(&self.opened.read().root);
        listing::remove_abandoned(&root, names::PIECES_MAX);
    }
}

fn complete_file(file: &OwnedFd, content: &[u8], sharing: Sharing, at: &Location) -> Result<()> {
    rustix::io::write(file, content).map_err(|error| io_error(error, "write", &at.path()))?;
    sharing.apply(file, ObjectKind::NewFile, &at.path())
}

fn name_file(at: &Location, members: &Directory, pending: &str) -> Result<()> {
    match at.name(members, pending) {
        Ok(()) => Ok(()),
        // Another process made the file at the same moment.
        Err(Errno::EXIST) => {
            // The next process that joins tries again.
            let _ = unlinkat(members, pending, AtFlags::empty());
            Ok(())
        }
        // Another process removed the folder of the long name because it was empty. The caller
        // tries again.
        Err(Errno::NOENT) if at.has_parents() => {
            let _ = unlinkat(members, pending, AtFlags::empty());
            Ok(())
        }
        Err(error) => Err(io_error(error, "make", &at.path())),
    }
}

/// Gives the token counter its new mode, if the mode of the folder was changed later.
fn repair_counter(at: &Location, sharing: Sharing) -> Result<()> {
    match at.look() {
        Ok(file) => sharing.repair(&file, ObjectKind::Counter, &at.path()),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io_error(error, "open the token counter", &at.path())),
    }
}

fn sharing_of(root: &Directory, stated: Option<Access>) -> Result<Sharing> {
    let status = fstat(root).map_err(|error| io_error(error, "inspect the folder", root.path()))?;
    Ok(Sharing::of(&status, stated))
}

/// Both directories, as of the last time they were opened.
#[derive(Clone, Debug)]
struct Opened {
    root: Arc<Directory>,
    members: Arc<Directory>,
}

impl Opened {
    fn open(path: &Path, locality: Locality, stated: Option<Access>) -> Result<Self> {
        let root = Directory::open_or_make(path, locality, stated)?;
        // All names need these two, so a stated mode does not concern them.
        let sharing = sharing_of(&root, None)?;
        let members = root.open_or_make_inside(OsStr::new(MEMBERS), sharing)?;
        let root = Arc::new(root);
        repair_counter(&root.file(COUNTER), sharing)?;
        Ok(Self {
            root,
            members: Arc::new(members),
        })
    }
}

/// Returns the path that a `file:` URL names after the colon. An empty path means the user's state
/// folder.
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
            let message = format!(
                "file: needs a folder on this machine, but the URL names the host {host:?}"
            );
            Err(Error::invalid(message).help("write file:/some/folder"))
        }
    }
}

/// Returns the error for a relative path, which would name another folder in each working
/// directory.
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
    // Only the owner, or a user who may write the file, may do this. The hold does not depend on
    // it.
    let _ = futimens(file, &times);
}

/// Returns the error for a file or FIFO that cannot be opened.
#[cold]
pub(super) fn open_error(error: OpenError, action: &str, at: &Location) -> Error {
    let path = at.path();
    let shown = path.display();
    match error {
        OpenError::Kernel(error) => kernel_error(error, action, at),
        OpenError::Type(FileType::Symlink) => io_error(Errno::LOOP, action, &path),
        OpenError::Type(_) => {
            Error::damaged(format!("{shown} is not a regular file")).help("remove it")
        }
        OpenError::Linked => {
            let message = format!(
                "cannot {action} {shown}: it has a second name (a hard link), and may be a file \
                 elsewhere"
            );
            Error::damaged(message).help(format!(
                "remove the wrong name: find / -xdev -samefile {shown} lists both"
            ))
        }
    }
}

/// If a file that may not be opened belongs to another user, the error names that user.
fn kernel_error(error: Errno, action: &str, at: &Location) -> Error {
    let described = io_error(error, action, &at.path());
    let Ok(Some(status)) = at.stat() else {
        return described;
    };
    if error != Errno::ACCESS || status.st_uid == geteuid().as_raw() {
        return described;
    }

    let owner =
        directory::user_name(status.st_uid).unwrap_or_else(|| format!("user {}", status.st_uid));
    let mode = status.st_mode & 0o7777;
    let path = at.path();
    let message = format!(
        "cannot {action} {}: permission denied; it belongs to {owner}, with the mode {mode:04o}",
        path.display()
    );
    Error::denied(message).help(format!(
        "when the lock is free, have {owner} or root remove it or give it the mode of the folder"
    ))
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

/// The first mode of a new file. Only the owner may use the file until it gets its final mode.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The prefix of the name, in `.members`, of a file that is still being made.
pub(super) const PENDING: &str = "new-";

/// The folder with one FIFO for each process that uses the store.
const MEMBERS: &str = ".members";

/// The token counter of the folder.
const COUNTER: &str = ".counter";

const LOCK: &str = ".lock";
const QUEUE: &str = ".queue";

/// The age from which the times of a file are renewed. Cleaners delete files after hours or days.
const RECENT: Duration = Duration::from_secs(60);
