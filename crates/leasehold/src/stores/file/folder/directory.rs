//! Directories by descriptor: renaming a part of the path leads nothing that is done inside them elsewhere.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Stat, chmodat, fstat, fsync, mkdirat, openat, statat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

use crate::local_fs::{Locality, check_local, io_error};
use crate::{Error, Result};

/// What is made is for its owner alone.
const DIRECTORY_MODE: Mode = Mode::RWXU;
/// Opens a directory that may not be read, so that its owner can be named.
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// What the user adds to a URL for a file system of which leasehold knows nothing.
const STATE_LOCAL: &str = "if it is local to this machine, add ?local=yes to the URL of the store";

/// An open directory whose owner may be trusted with locks.
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens the directory at an absolute path and makes the missing parts of the path.
    ///
    /// What exists may be reached through symbolic links; what is made never is.
    pub(crate) fn open_or_make(path: &Path, locality: Locality) -> Result<Self> {
        let found = match openat(CWD, path, LOOK, Mode::empty()) {
            Err(Errno::NOENT) => make_path(path, locality)?,
            found => found.map_err(|error| io_error(error, "open the folder", path))?,
        };
        let directory = Self::accept(&found, path.to_owned())?;
        check_local(&directory, path, locality, STATE_LOCAL)?;
        Ok(directory)
    }

    /// Opens a directory in this one, never through a symbolic link, and makes it if it is missing.
    pub(crate) fn open_or_make_inside(&self, name: &OsStr) -> Result<Self> {
        let path = self.path.join(name);
        let found = match openat(self, name, LOOK | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) => make_part(self, name, &path)?,
            found => found.map_err(|error| not_a_directory(error, &path))?,
        };
        Self::accept(&found, path)
    }

    /// Opens a directory in this one for listing; `None` if it is none.
    pub(crate) fn read_inside(&self, name: &OsStr) -> Result<Option<Self>> {
        let path = self.path.join(name);
        match openat(self, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(io_error(error, "list the folder", &path)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub(crate) fn file(self: &Arc<Self>, name: impl Into<PathBuf>) -> Location {
        Location {
            directory: Arc::clone(self),
            relative: name.into(),
        }
    }

    /// Checks the owner of what was opened, not of what has the path now, and opens the same for reading.
    fn accept(found: &OwnedFd, path: PathBuf) -> Result<Self> {
        let what = fstat(found).map_err(|error| io_error(error, "look at the folder", &path))?;
        if !is_trusted(&what) {
            return Err(of_another(&what, &path));
        }
        let fd = openat(found, ".", READ, Mode::empty())
            .map_err(|error| io_error(error, "open the folder", &path))?;
        Ok(Self { fd, path })
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// A file in a directory: opened through the directory's descriptor, shown by its path.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    directory: Arc<Directory>,
    relative: PathBuf,
}

impl Location {
    pub(crate) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat(
            &self.directory,
            &self.relative,
            flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        )
    }

    /// What stands there, which may be a symbolic link; `None` if nothing does.
    pub(crate) fn stat(&self) -> Result<Option<Stat>> {
        match statat(&self.directory, &self.relative, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(what) => Ok(Some(what)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error(error, "look at", &self.path())),
        }
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Its path from its directory: one name, but for long names of locks.
    pub(crate) fn relative(&self) -> &Path {
        &self.relative
    }

    /// Makes the directories that a long name needs.
    pub(crate) fn make_parent(&self) -> Result<()> {
        let parts = self.relative.parent().into_iter().flatten();
        let mut directory = None::<Directory>;
        for part in parts {
            let outer = directory.as_ref().unwrap_or(&self.directory);
            directory = Some(outer.open_or_make_inside(part)?);
        }
        Ok(())
    }

    /// Makes a new name durable.
    pub(crate) fn sync_parent(&self) -> rustix::io::Result<()> {
        match self.relative.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                fsync(openat(&self.directory, parent, READ, Mode::empty())?)
            }
            _ => fsync(&self.directory),
        }
    }

    /// For messages and tables, not for opening.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.relative)
    }
}

/// Sets the mode of what was just made, whatever the umask has left of it: `fchmod` needs a descriptor that is open for
/// reading or writing, and the umask may forbid both.
pub(crate) fn complete_mode(file: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    chmodat(
        CWD,
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        mode,
        AtFlags::empty(),
    )
}

/// Follows the path as far as it exists, and makes the rest one part at a time, each inside the one before.
fn make_path(path: &Path, locality: Locality) -> Result<OwnedFd> {
    let mut here = PathBuf::from("/");
    let mut at = openat(CWD, &here, LOOK, Mode::empty())
        .map_err(|error| io_error(error, "open the folder", &here))?;
    let mut is_made = false;

    for part in path.components().filter(|part| *part != Component::RootDir) {
        let part = part.as_os_str();
        here.push(part);
        let found = if is_made {
            Err(Errno::NOENT)
        } else {
            openat(&at, part, LOOK, Mode::empty())
        };
        at = match found {
            Err(Errno::NOENT) => {
                if !is_made {
                    check_local(&at, path, locality, STATE_LOCAL)?;
                }
                is_made = true;
                make_part(&at, part, &here)?
            }
            found => found.map_err(|error| io_error(error, "open the folder", &here))?,
        };
    }
    Ok(at)
}

/// Makes one directory and opens it, or the one that another process made at the same moment.
fn make_part(parent: impl AsFd, name: &OsStr, path: &Path) -> Result<OwnedFd> {
    let is_made = match mkdirat(&parent, name, DIRECTORY_MODE) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(io_error(error, "make the folder", path)),
    };
    let found = openat(&parent, name, LOOK | OFlags::NOFOLLOW, Mode::empty());
    let found = found.map_err(|error| not_a_directory(error, path))?;

    // Whoever may rename it could have put another directory in its place. Only what looks as if this program had just
    // made it gets the owner's missing rights, and nothing else is ever changed.
    let what = fstat(&found).map_err(|error| io_error(error, "look at the folder", path))?;
    let rights = Mode::from_raw_mode(what.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
    let is_just_made = what.st_uid == geteuid().as_raw() && DIRECTORY_MODE.contains(rights);
    if is_made && !is_just_made {
        return Err(
            Error::denied(format!("{} was replaced while it was made", path.display()))
                .help("choose a folder in a place where no other user may rename it"),
        );
    }
    if is_just_made && rights != DIRECTORY_MODE {
        complete_mode(&found, DIRECTORY_MODE)
            .map_err(|error| io_error(error, "set up the folder", path))?;
    }
    Ok(found)
}

fn not_a_directory(error: Errno, path: &Path) -> Error {
    // The kernel says so of a symbolic link that must not be followed, too.
    let error = if error == Errno::NOTDIR {
        Errno::EXIST
    } else {
        error
    };
    io_error(error, "open the folder", path)
}

/// Whether locks may be kept in a directory: its owner can rename what is in it, and break any lock.
///
/// A directory that this process may write although it belongs to another was shared on purpose.
fn is_trusted(what: &Stat) -> bool {
    const ROOT: u32 = 0;
    let mode = Mode::from_raw_mode(what.st_mode);
    let is_in_group = |group| getegid().as_raw() == group || has_group(group);
    what.st_uid == ROOT
        || what.st_uid == geteuid().as_raw()
        || mode.contains(Mode::WOTH)
        || mode.contains(Mode::WGRP) && is_in_group(what.st_gid)
}

fn has_group(group: u32) -> bool {
    getgroups().is_ok_and(|groups| groups.iter().any(|own| own.as_raw() == group))
}

#[cold]
fn of_another(what: &Stat, path: &Path) -> Error {
    let owner = user_name(what.st_uid).unwrap_or_else(|| format!("user {}", what.st_uid));
    let what = format!(
        "{} belongs to {owner}, who could break every lock in it",
        path.display()
    );
    Error::denied(what)
        .help("choose a folder of this user or of root, or have it given to one of them (chown)")
}

/// The name of a user of this machine.
fn user_name(user: u32) -> Option<String> {
    let table = std::fs::read_to_string("/etc/passwd").ok()?;
    table.lines().find_map(|queue| {
        let mut fields = queue.split(':');
        let name = fields.next()?;
        let is_it = fields.nth(1)?.parse() == Ok(user);
        is_it.then(|| name.to_owned())
    })
}
