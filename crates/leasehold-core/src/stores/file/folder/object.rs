//! Files, FIFOs and directories of the folder. They are checked before they are opened or changed.
//!
//! Another user who may write the folder can put something else in the place of one of them: a
//! device, a FIFO, a hard link to a file elsewhere, or a private file or directory that was in the
//! folder under another name. So an entry is looked at before it is opened (`O_PATH`, which has no
//! effect on it), and a change concerns the descriptor that was checked.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Gid, Mode, OFlags, Stat, StatxFlags, Timespec,
    Timestamps, UTIME_NOW, chmodat, chownat, fstat, futimens, openat, statat, statx,
};
use rustix::io::Errno;

use super::names::is_member;
use crate::local_fs::io_error;
use crate::stores::file::counter;
use crate::{Error, Result};

/// Why an entry of the folder was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    Kernel(Errno),
    /// It has another type. A device was not opened, because that can have effects.
    Type(FileType),
    /// It has a second name, so it can be any file on the same file system.
    Linked,
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        Self::Kernel(error)
    }
}

/// Opens an entry of this type without a second name, never through a symbolic link.
pub(super) fn open_checked(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    file_type: FileType,
    flags: OFlags,
) -> std::result::Result<OwnedFd, OpenError> {
    check(&look(parent, name)?, file_type)?;
    let opened = openat(parent, name, flags | OPEN, Mode::empty())?;
    // Another user may have replaced it since.
    check(&opened, file_type)?;
    Ok(opened)
}

/// A descriptor of an entry itself, of any type. Nothing is opened.
pub(super) fn look(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, OFlags::PATH | OPEN, Mode::empty())
}

fn check(object: &OwnedFd, file_type: FileType) -> std::result::Result<(), OpenError> {
    let status = fstat(object)?;
    let found = FileType::from_raw_mode(status.st_mode);
    if found != file_type {
        return Err(OpenError::Type(found));
    }
    if has_second_name(object, &status) {
        return Err(OpenError::Linked);
    }
    Ok(())
}

/// Sets the times of a file in use to now, unless they are recent.
///
/// Cleaners of temporary folders delete files with old times.
pub(crate) fn touch(file: impl AsFd) {
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

/// The kinds of objects that leasehold makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    NewFile,
    Counter,
    Fifo,
    Directory,
}

impl ObjectKind {
    fn file_type(self) -> FileType {
        match self {
            Self::NewFile | Self::Counter => FileType::RegularFile,
            Self::Fifo => FileType::Fifo,
            Self::Directory => FileType::Directory,
        }
    }

    /// Whether an object of the right type has the content of what leasehold makes. A file or FIFO
    /// that this process has just made needs no look.
    fn has_content(self, object: &OwnedFd) -> bool {
        match self {
            Self::NewFile | Self::Fifo => true,
            Self::Counter => {
                File::open(proc_path(object)).is_ok_and(|file| counter::is_counter(&file))
            }
            Self::Directory => openat(object, ".", READ, Mode::empty())
                .is_ok_and(|directory| has_only_members(&directory)),
        }
    }
}

/// A change of mode and group. Every such change goes through here.
pub(crate) struct Change {
    pub(crate) kind: ObjectKind,
    /// The user that must own the object.
    pub(crate) owner: u32,
    pub(crate) group: Option<Gid>,
    pub(crate) mode: Mode,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Done,
    /// The object is not what leasehold makes. It stays as it is.
    Refused,
}

impl Change {
    /// Changes an open object, if it is certainly one that leasehold has made: by its type, its
    /// owner, the number of its names and, before other users get rights, its content.
    pub(crate) fn apply(&self, object: &OwnedFd, path: &Path) -> Result<Changed> {
        let status = fstat(object).map_err(|error| io_error(error, "inspect", path))?;
        let group = self.group.filter(|group| group.as_raw() != status.st_gid);
        let mode = Some(self.mode).filter(|mode| *mode != Mode::from_raw_mode(status.st_mode));
        if group.is_none() && mode.is_none() {
            return Ok(Changed::Done);
        }

        let is_for_others = self.mode.intersects(Mode::RWXG | Mode::RWXO);
        if !self.concerns(object, &status) || is_for_others && !self.kind.has_content(object) {
            return Ok(Changed::Refused);
        }

        // The group comes first: before, the mode would give access to another.
        if let Some(group) = group {
            chownat(object, "", None, Some(group), AtFlags::EMPTY_PATH)
                .map_err(|error| group_error(error, group, path))?;
        }
        if let Some(mode) = mode {
            // `fchmod` needs a descriptor that is open for reading or writing. The umask may forbid
            // both.
            chmodat(CWD, proc_path(object), mode, AtFlags::empty())
                .map_err(|error| mode_error(error, mode, path))?;
        }
        Ok(Changed::Done)
    }

    /// As [`apply`](Self::apply), for what this process has just made.
    pub(crate) fn apply_to_new(&self, object: &OwnedFd, path: &Path) -> Result<()> {
        match self.apply(object, path)? {
            Changed::Done => Ok(()),
            Changed::Refused => Err(replaced(path)),
        }
    }

    fn concerns(&self, object: &OwnedFd, status: &Stat) -> bool {
        FileType::from_raw_mode(status.st_mode) == self.kind.file_type()
            && status.st_uid == self.owner
            && !has_second_name(object, status)
    }
}

#[cold]
fn mode_error(error: Errno, mode: Mode, path: &Path) -> Error {
    let described = io_error(error, "set the mode of", path);
    if error != Errno::PERM || !mode.contains(Mode::SGID) {
        return described;
    }
    // The object belongs to this user, so a filter of system calls forbids the bit.
    described.help(
        "RestrictSUIDSGID= of systemd, which DynamicUser= implies, forbids a new folder of a \
         group; use this lock once outside of the unit, then the folder exists",
    )
}

/// Whether a file has a second name, and so may be in another folder too. The link count of a
/// directory counts the directories inside.
fn has_second_name(object: &OwnedFd, status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) != FileType::Directory
        && status.st_nlink > 1
        && present_names(object).is_none_or(|names| names > 1)
}

/// The present number of names. FUSE reports a number that may be a second old.
fn present_names(object: &OwnedFd) -> Option<u32> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let status = statx(object, "", flags, StatxFlags::NLINK).ok()?;
    Some(status.stx_nlink)
}

/// The path of an open descriptor.
fn proc_path(object: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

/// Whether a directory has only what leasehold makes in `.members`, or nothing.
fn has_only_members(directory: &OwnedFd) -> bool {
    let is_own = |entry: &DirEntry| {
        let status = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        let name = entry.file_name().to_str().unwrap_or_default();
        [".", ".."].contains(&name)
            || status.is_ok_and(|status| is_member(name, FileType::from_raw_mode(status.st_mode)))
    };
    Dir::read_from(directory)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_own(&entry))))
}

/// The error if another user put something else in the place of what this process was making.
#[cold]
pub(super) fn replaced(path: &Path) -> Error {
    let message = format!("{} was replaced while it was made", path.display());
    Error::denied(message).help("choose a folder in a place where no other user may rename it")
}

#[cold]
fn group_error(error: Errno, group: Gid, path: &Path) -> Error {
    let reason = match error {
        Errno::PERM => "this user is not a member",
        Errno::INVAL => "the group has no number in this user namespace (PrivateUsers= of systemd)",
        _ => return io_error(error, "set the group of", path),
    };
    let group = group.as_raw();
    let path = path.display();
    let message = format!("cannot give {path} to group {group}: {reason}");
    Error::denied(message).help("add this user to the group, or set the folder's setgid bit")
}

/// The age from which the times of a file are renewed. Cleaners delete files after hours or days.
const RECENT: Duration = Duration::from_secs(60);

/// Opens a directory for listing and for opening files in it.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// An entry that is replaced by a FIFO or a terminal at this moment neither blocks this process nor
/// becomes its terminal.
const OPEN: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustix::fs::mknodat;
    use rustix::process::geteuid;

    use super::*;
    use crate::stores::file::counter::TokenCounter;

    const FIFO: &str = "0123456789abcdef0123456789abcdef";

    /// Makes an object with one of several contents, with the mode 0600 or 0700.
    fn make(at: &Path, what: &str) {
        match what {
            "FIFO" | "linked FIFO" => {
                mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
            }
            "empty folder" | "folder of members" | "folder" => {
                fs::create_dir(at).expect("made");
            }
            "disk image" => fs::write(at, [0; 4096]).expect("written"),
            "text" => fs::write(at, "secret").expect("written"),
            "counter" | "linked counter" => {
                let file = File::create(at).expect("made");
                let mut counter = TokenCounter::fresh([1; 16]);
                counter.reserve(&file).expect("written");
            }
            _ => fs::write(at, "").expect("written"),
        }
        match what {
            "folder of members" => make(&at.join(FIFO), "FIFO"),
            "folder" => make(&at.join(FIFO), "text"),
            linked if linked.starts_with("linked") => {
                fs::hard_link(at, at.with_extension("second")).expect("linked");
            }
            _ => {}
        }
        let mode = if at.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("set");
    }

    /// Shows G-22.
    #[test]
    fn only_what_leasehold_makes_is_changed() {
        use Changed::{Done, Refused};
        use ObjectKind::{Counter, Directory, Fifo, NewFile};

        let own = geteuid().as_raw();
        for (kind, what, owner, wanted) in [
            (NewFile, "empty file", own, Done),
            (NewFile, "empty file", own + 1, Refused),
            (NewFile, "linked file", own, Refused),
            (NewFile, "FIFO", own, Refused),
            (Counter, "counter", own, Done),
            (Counter, "counter", own + 1, Refused),
            (Counter, "linked counter", own, Refused),
            (Counter, "empty file", own, Refused),
            (Counter, "text", own, Refused),
            (Counter, "disk image", own, Refused),
            (Counter, "empty folder", own, Refused),
            (Fifo, "FIFO", own, Done),
            (Fifo, "FIFO", own + 1, Refused),
            (Fifo, "linked FIFO", own, Refused),
            (Fifo, "text", own, Refused),
            (Directory, "empty folder", own, Done),
            (Directory, "folder of members", own, Done),
            (Directory, "empty folder", own + 1, Refused),
            (Directory, "folder", own, Refused),
            (Directory, "text", own, Refused),
        ] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let at = folder.path().join("object");
            make(&at, what);
            let before = fs::metadata(&at).expect("there").mode() & 0o7777;

            let object = openat(CWD, &at, OFlags::PATH, Mode::empty()).expect("there");
            let mode = Mode::from_raw_mode(0o770);
            let change = Change {
                kind,
                owner,
                group: None,
                mode,
            };
            let changed = change.apply(&object, &at).expect("inspected");

            assert_eq!(changed, wanted, "{kind:?}, {what} of {owner}");
            let after = fs::metadata(&at).expect("there").mode() & 0o7777;
            let mode = if wanted == Done { 0o770 } else { before };
            assert_eq!(after, mode, "{kind:?}, {what} of {owner}");
        }
    }
}
