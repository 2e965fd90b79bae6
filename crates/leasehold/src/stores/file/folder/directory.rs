//! Directories by descriptor.
//!
//! Every operation goes through an open directory. If a part of the path is renamed, the operations
//! still reach the directory that was opened and checked.

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

/// An open directory whose owner may be trusted with locks.
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens the directory at an absolute path and makes the missing parts of the path.
    ///
    /// Existing parts may be reached through symbolic links. A new part is never made through one.
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

    /// Opens a directory in this one for listing; `None` if the entry is not a directory.
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

    /// A file in this directory.
    pub(crate) fn file(self: &Arc<Self>, name: impl Into<PathBuf>) -> Location {
        Location {
            directory: Arc::clone(self),
            relative: name.into(),
        }
    }

    /// Checks the owner and opens the directory for reading.
    ///
    /// The check is on the directory that was opened, not on the one that has the path now.
    fn accept(found: &OwnedFd, path: PathBuf) -> Result<Self> {
        let status = fstat(found).map_err(|error| io_error(error, "inspect the folder", &path))?;
        if !is_trusted(&status) {
            return Err(untrusted_owner(&status, &path));
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

/// A file in a directory. It is opened through the directory's descriptor and shown by its path.
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

    /// The status of the entry, which may be a symbolic link; `None` if there is no entry.
    pub(crate) fn stat(&self) -> Result<Option<Stat>> {
        match statat(&self.directory, &self.relative, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io_error(error, "inspect", &self.path())),
        }
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The path from the directory. It has more than one part only for long names of locks.
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

    /// The whole path, for messages and tables. Files are not opened by it.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.relative)
    }
}

/// Sets the mode of a new file or directory to all that the umask may have taken from it.
///
/// `fchmod` needs a descriptor that is open for reading or writing. The umask may forbid both.
pub(crate) fn complete_mode(file: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    chmodat(CWD, path, mode, AtFlags::empty())
}

/// Follows the path as far as it exists and makes the other parts, each inside the one before.
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
    let found = openat(&parent, name, LOOK | OFlags::NOFOLLOW, Mode::empty())
        .map_err(|error| not_a_directory(error, path))?;

    // Another user with rights on the parent could have put another directory in its place. Only a
    // directory that this program can have just made gets the owner's missing rights.
    let status = fstat(&found).map_err(|error| io_error(error, "inspect the folder", path))?;
    let rights = Mode::from_raw_mode(status.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
    let is_just_made = status.st_uid == geteuid().as_raw() && DIRECTORY_MODE.contains(rights);
    if is_made && !is_just_made {
        let message = format!("{} was replaced while it was made", path.display());
        return Err(Error::denied(message)
            .help("choose a folder in a place where no other user may rename it"));
    }

    if is_just_made && rights != DIRECTORY_MODE {
        complete_mode(&found, DIRECTORY_MODE)
            .map_err(|error| io_error(error, "set the mode of the folder", path))?;
    }
    Ok(found)
}

fn not_a_directory(error: Errno, path: &Path) -> Error {
    // The kernel returns NOTDIR also for a symbolic link that must not be followed.
    let error = match error {
        Errno::NOTDIR => Errno::EXIST,
        other => other,
    };
    io_error(error, "open the folder", path)
}

/// Whether locks may be kept in a directory. Its owner can rename its files and break any lock.
///
/// A directory that this process may write although another user owns it was shared on purpose.
fn is_trusted(status: &Stat) -> bool {
    const ROOT: u32 = 0;
    let mode = Mode::from_raw_mode(status.st_mode);
    let is_in_group = |group| getegid().as_raw() == group || has_group(group);

    status.st_uid == ROOT
        || status.st_uid == geteuid().as_raw()
        || mode.contains(Mode::WOTH)
        || mode.contains(Mode::WGRP) && is_in_group(status.st_gid)
}

fn has_group(group: u32) -> bool {
    getgroups().is_ok_and(|groups| groups.iter().any(|own| own.as_raw() == group))
}

#[cold]
fn untrusted_owner(status: &Stat, path: &Path) -> Error {
    let user = status.st_uid;
    let owner = user_name(user).unwrap_or_else(|| format!("user {user}"));
    let path = path.display();
    let message = format!("{path} belongs to {owner}, who could break every lock in it");
    Error::denied(message)
        .help("choose a folder of this user or of root, or have it given to one of them (chown)")
}

/// The name of a user of this machine.
fn user_name(user: u32) -> Option<String> {
    let table = std::fs::read_to_string("/etc/passwd").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let is_this_user = fields.nth(1)?.parse() == Ok(user);
        is_this_user.then(|| name.to_owned())
    })
}

/// A new directory is for its owner alone.
const DIRECTORY_MODE: Mode = Mode::RWXU;

/// Opens a directory that this process may not read, so that the error can name its owner.
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory for listing and for opening files in it.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The setting that a user adds to the URL for a file system that leasehold does not know.
const STATE_LOCAL: &str = "if it is local to this machine, add ?local=yes to the URL of the store";
