//! What `leasehold release` and `leasehold check` say of a lock that was lost.
//!
//! The store forgets a hold that is lost, and the process that had it ends. So this process leaves
//! a file, which only its user can read, in `$XDG_RUNTIME_DIR` or the user's state folder. A note
//! shows that the hold is lost, also while the store still has it. A missing, damaged or foreign one
//! leaves that to the store, and the time and the reason out.

use std::fs::{DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Zoned;
use leasehold::Token;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, statat, unlinkat};
use rustix::process::geteuid;

use crate::user_folder;

/// How long a note is kept. A time of day is enough to say when.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// The most notes of a user. An outage may cost all of its locks at once.
const NOTES_MAX: usize = 1_000;
/// More bytes than a note has: the reason may contain the URL of a store.
const LENGTH_MAX: u64 = 4_096;

/// The note of one hold.
#[derive(Clone, Debug)]
pub(crate) struct LossNote {
    file: String,
}

impl LossNote {
    /// `url` is the URL of the store without its password.
    ///
    /// The number of a store and name may differ in another version of leasehold.
    pub(crate) fn of(url: &str, name: &str, token: Token) -> Self {
        let mut hasher = DefaultHasher::new();
        (url, name).hash(&mut hasher);
        Self {
            file: format!("{:016x}-{token}", hasher.finish()),
        }
    }

    /// Leaves the note that the lock is lost now.
    pub(crate) fn leave(&self, reason: &str) {
        let text = format!("{}: {reason}", Zoned::now().strftime("%H:%M:%S"));

        let left = folders().any(|folder| self.leave_in(&folder, &text).is_ok());
        if !left {
            tracing::debug!("no folder of this user takes a note of the loss");
        }
    }

    fn leave_in(&self, folder: &Path, text: &str) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let folder = open_private(folder)?;
        if remove_old(&folder)? >= NOTES_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }

        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let note = openat(&folder, &self.file, flags | SAFELY, Mode::RUSR | Mode::WUSR)?;
        File::from(note).write_all(text.as_bytes())
    }

    /// Returns when and why the lock was lost, as `21:04:13: reason`.
    pub(crate) fn read(&self) -> Option<String> {
        folders().find_map(|folder| self.read_in(&folder).ok())
    }

    fn read_in(&self, folder: &Path) -> io::Result<String> {
        let folder = open_private(folder)?;
        let note = openat(&folder, &self.file, OFlags::RDONLY | SAFELY, Mode::empty())?;

        let mut text = String::new();
        File::from(note)
            .take(LENGTH_MAX)
            .read_to_string(&mut text)?;
        if text.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(text)
    }
}

/// The folders for notes, the preferred one first.
fn folders() -> impl Iterator<Item = PathBuf> {
    user_folder::candidates().map(|folder| folder.join("leasehold-lost"))
}

const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// Opens the folder, unless another user could write into it. Everything else is done by this
/// descriptor, because the name may lead to another folder by now.
fn open_private(folder: &Path) -> io::Result<OwnedFd> {
    let folder = open(folder, OFlags::DIRECTORY | SAFELY, Mode::empty())?;
    let status = fstat(&folder)?;
    let others_rights = status.st_mode & 0o077;
    if status.st_uid == geteuid().as_raw() && others_rights == 0 {
        return Ok(folder);
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// Removes the notes that are too old, and returns how many remain.
fn remove_old(folder: &OwnedFd) -> io::Result<usize> {
    let oldest = SystemTime::now() - KEPT;
    let oldest = oldest.duration_since(SystemTime::UNIX_EPOCH);
    let oldest = i64::try_from(oldest.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);

    let mut left = 0;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // Another process may have removed it.
        let Ok(status) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            continue;
        }
        if status.st_mtime > oldest {
            left += 1;
        } else {
            // A file that stays is tried again with the next note.
            let _ = unlinkat(folder, name, AtFlags::empty());
        }
    }
    Ok(left)
}
