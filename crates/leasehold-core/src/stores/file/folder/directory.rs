//! Directories by descriptor.
//!
//! Every operation goes through an open directory. If a part of the path is renamed, the operations
//! still reach the directory that was opened and checked.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fstat, mkdirat, openat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::object::{Change, ObjectKind, READ, replaced};
use super::sharing::{Access, Sharing, is_in_group};
use crate::local_fs::{Locality, check_local, io_error, user_shown};
use crate::store::draw_claim_id;
use crate::{Error, Result};

/// Opens the directory at an absolute path and makes the missing parts of the path.
///
/// Existing parts may be reached through symbolic links. A new part is never made through one. An
/// existing directory keeps its mode; `stated` is the access that a new directory gives.
pub(super) fn open_or_make(
    path: &Path,
    locality: Locality,
    stated: Option<Access>,
) -> Result<OwnedFd> {
    let found = match openat(CWD, path, LOOK, Mode::empty()) {
        Err(Errno::NOENT) => make_path(path, locality, stated)?,
        found => found.map_err(|error| io_error(error, "open the folder", path))?,
    };

    let directory = accept(&found, path)?;
    check_local(&directory, path, locality, STATE_LOCAL)?;
    Ok(directory)
}

/// Opens a directory in another one, never through a symbolic link, and makes it if it is missing.
pub(super) fn open_or_make_inside(
    parent: &OwnedFd,
    name: &OsStr,
    path: &Path,
    sharing: Sharing,
) -> Result<OwnedFd> {
    let found = match openat(parent, name, LOOK | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOENT) if sharing.is_private() => make_part(parent, name, path)?,
        Err(Errno::NOENT) => make_shared_inside(parent, name, path, sharing)?,
        found => found.map_err(|error| not_a_directory(error, path))?,
    };

    sharing.repair(&found, ObjectKind::Directory, path)?;
    accept(&found, path)
}

/// Makes a directory that gets its name only when its mode is right. Another user may open it from
/// then on.
fn make_shared_inside(
    parent: &OwnedFd,
    name: &OsStr,
    path: &Path,
    sharing: Sharing,
) -> Result<OwnedFd> {
    let pending = format!("{PENDING_DIRECTORY}{}", draw_claim_id());
    let pending_path = path.with_file_name(&pending);
    let made = make_part(parent, OsStr::new(&pending), &pending_path)?;
    if let Err(error) = sharing.apply(&made, ObjectKind::Directory, &pending_path) {
        // The first error says more than an error of the removal.
        let _ = unlinkat(parent, &pending, AtFlags::REMOVEDIR);
        return Err(error);
    }

    if renameat_with(parent, &pending, parent, name, RenameFlags::NOREPLACE).is_ok() {
        return Ok(made);
    }
    // Another process made it at the same moment, or the file system cannot rename without
    // replacing. Then the directory gets its mode after its name.
    match unlinkat(parent, &pending, AtFlags::REMOVEDIR) {
        // `leasehold gc` removed it, because this process was stopped for a long time.
        Ok(()) | Err(Errno::NOENT) => make_part(parent, name, path),
        Err(error) => Err(io_error(error, "remove the folder", &pending_path)),
    }
}

/// Opens a directory in another one for listing; `None` if the entry is not a directory.
pub(super) fn read_inside(parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<OwnedFd>> {
    match openat(parent, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(io_error(error, "list the folder", path)),
    }
}

/// Removes a directory if a process made it a long time ago and never named it.
///
/// The removal fails if the directory is not empty. So it removes nothing that is in use.
pub(super) fn remove_if_abandoned(parent: &OwnedFd, name: &OsStr) {
    if !name.as_bytes().starts_with(PENDING_DIRECTORY.as_bytes()) {
        return;
    }

    let status = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    if status.is_ok_and(|status| is_abandoned(&status)) {
        // It stays if another user owns it. That user or root removes it.
        let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
}

/// Checks the owner and opens the directory for reading.
///
/// The check concerns the directory that was opened, even if another one is at the path now.
fn accept(found: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let status = fstat(found).map_err(|error| io_error(error, "inspect the folder", path))?;
    if !is_trusted(&status) {
        return Err(untrusted_owner(&status, path));
    }
    openat(found, ".", READ, Mode::empty())
        .map_err(|error| io_error(error, "open the folder", path))
}

/// Follows the path as far as it exists, and makes each missing part inside the part before it.
///
/// Other users must be able to reach a folder that is made for them too.
fn make_path(path: &Path, locality: Locality, stated: Option<Access>) -> Result<OwnedFd> {
    let longest =
        path.ancestors().find_map(
            |ancestor| match openat(CWD, ancestor, LOOK, Mode::empty()) {
                Err(Errno::NOENT) => None,
                found => Some((ancestor, found)),
            },
        );
    let (existing, found) = longest.expect("every path begins at the root folder");
    let mut at = found.map_err(|error| io_error(error, "open the folder", existing))?;
    check_local(&at, path, locality, STATE_LOCAL)?;

    let is_shared = stated.is_some_and(|access| access != Access::Owner);
    let mut here = existing.to_owned();
    for part in path.strip_prefix(existing).expect("it is an ancestor") {
        if is_shared && here != existing {
            change_of_mode(REACHABLE_MODE).apply_to_new(&at, &here)?;
        }
        here.push(part);
        at = make_part(&at, part, &here)?;
    }

    if let Some(access) = stated
        && here != existing
    {
        let status = fstat(&at).map_err(|error| io_error(error, "inspect the folder", path))?;
        let sharing = Sharing::of_new_folder(&status, access);
        if let Err(error) = sharing.apply(&at, ObjectKind::Directory, path) {
            // It would stay closed to its other users. The first error says more than this one.
            let _ = unlinkat(CWD, path, AtFlags::REMOVEDIR);
            return Err(error);
        }
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
        return Err(replaced(path));
    }

    if is_just_made && rights != DIRECTORY_MODE {
        change_of_mode(DIRECTORY_MODE).apply_to_new(&found, path)?;
    }
    Ok(found)
}

/// The change of the mode of a directory that this process has made.
fn change_of_mode(mode: Mode) -> Change {
    Change {
        kind: ObjectKind::Directory,
        owner: geteuid().as_raw(),
        group: None,
        mode,
    }
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
/// If this process may write the directory of another user, that user shared it on purpose.
fn is_trusted(status: &Stat) -> bool {
    const ROOT: u32 = 0;
    let mode = Mode::from_raw_mode(status.st_mode);

    status.st_uid == ROOT
        || status.st_uid == geteuid().as_raw()
        || mode.contains(Mode::WOTH)
        || mode.contains(Mode::WGRP) && is_in_group(status.st_gid)
}

#[cold]
fn untrusted_owner(status: &Stat, path: &Path) -> Error {
    let owner = user_shown(status.st_uid);
    let path = path.display();
    let message = format!("{path} belongs to {owner}, who could break every lock in it");
    Error::denied(message).help(
        "choose a folder of this user or of root, have it given to one of them (chown), \
         or share it on purpose: chmod 2770 and a common group",
    )
}

/// Whether making a file or a directory has certainly ended. Its maker may have been killed.
pub(crate) fn is_abandoned(status: &Stat) -> bool {
    let modified = Duration::from_secs(status.st_mtime.try_into().unwrap_or(0));
    UNIX_EPOCH
        .checked_add(modified)
        .and_then(|modified| SystemTime::now().duration_since(modified).ok())
        .is_some_and(|passed| passed > PENDING_MAX)
}

/// The prefix of the name of a directory that is still being made.
const PENDING_DIRECTORY: &str = ".new-";

/// How long making a file or a directory may take before it counts as abandoned.
const PENDING_MAX: Duration = Duration::from_secs(60);

/// A new directory is for its owner alone.
const DIRECTORY_MODE: Mode = Mode::RWXU;

/// The mode of a directory that all users may pass through and list.
const REACHABLE_MODE: Mode = Mode::RWXU
    .union(Mode::RGRP)
    .union(Mode::XGRP)
    .union(Mode::ROTH)
    .union(Mode::XOTH);

/// Opens a directory that this process may not read, so that the error can name its owner.
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The setting that a user adds to the URL for a file system that leasehold does not know.
const STATE_LOCAL: &str = "if it is local to this machine, add ?local=yes to the URL of the store";
