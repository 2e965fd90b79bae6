//! What `leasehold release` and `leasehold check` say of a lock that was lost.
//!
//! The store forgets a hold that is lost, and the process that had it ends. So this process leaves
//! a file, which only its user can read, in `$XDG_RUNTIME_DIR` or the user's state folder. A note is
//! for people: nothing is decided by it. A missing, damaged or foreign one only leaves out the time
//! and the reason.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Zoned;
use leasehold::Token;
use nix::unistd::geteuid;

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
        check_private(folder)?;
        if remove_old(folder)? >= NOTES_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }

        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(folder.join(&self.file))?
            .write_all(text.as_bytes())
    }

    /// Returns when and why the lock was lost, as `21:04:13: reason`.
    pub(crate) fn read(&self) -> Option<String> {
        folders().find_map(|folder| self.read_in(&folder).ok())
    }

    fn read_in(&self, folder: &Path) -> io::Result<String> {
        check_private(folder)?;

        let mut text = String::new();
        let note = File::open(folder.join(&self.file))?;
        note.take(LENGTH_MAX).read_to_string(&mut text)?;
        if text.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(text)
    }
}

/// The folders for notes, the preferred one first. The home of a user is never created.
fn folders() -> impl Iterator<Item = PathBuf> {
    let existing = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        (path.is_absolute() && path.is_dir()).then_some(path)
    };
    let state = || {
        existing("XDG_STATE_HOME").or_else(|| Some(existing("HOME")?.join(".local").join("state")))
    };

    let folders = existing("XDG_RUNTIME_DIR").into_iter().chain(state());
    folders.map(|folder| folder.join("leasehold-lost"))
}

/// Refuses a folder in which another user could write. The variables may name any folder.
fn check_private(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    let others_rights = metadata.mode() & 0o077;
    if metadata.is_dir() && metadata.uid() == geteuid().as_raw() && others_rights == 0 {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// Removes the notes that are too old, and returns how many remain.
fn remove_old(folder: &Path) -> io::Result<usize> {
    let mut left = 0;
    for entry in fs::read_dir(folder)?.flatten() {
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if age < KEPT {
            left += 1;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(left)
}
