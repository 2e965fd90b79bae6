//! What went wrong with a file, in words that say what to do.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::Error;

/// Turns what the kernel said into an error for people: `doing` reads like "open the line file".
pub(super) fn io_error(error: impl Into<io::Error>, doing: &str, path: &Path) -> Error {
    let error = error.into();
    let what = |reason: &str| format!("cannot {doing} {}: {reason}", path.display());
    let told = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => Error::denied(what("permission denied"))
            .help("give this user the folder and all that is in it, or choose another folder with file:/some/folder"),
        Some(Errno::ROFS) => Error::denied(what("the file system is read-only"))
            .help("choose a folder that can be written with file:/some/folder"),
        Some(Errno::NOSPC | Errno::DQUOT) => {
            Error::unavailable(what("the disk is full")).help("free some space, or choose a folder on another disk")
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            Error::unavailable(what("too many open files")).help("raise the limit on open files (ulimit -n)")
        }
        Some(Errno::NOENT) => Error::invalid(what("no such file or folder")),
        Some(Errno::EXIST) => Error::invalid(what("something that is not a folder stands in its place")),
        Some(Errno::NOTDIR) => Error::invalid(what("a part of the path is not a folder")),
        Some(Errno::LOOP) => Error::damaged(what("a symbolic link stands in its place")).help("remove the link"),
        Some(Errno::NAMETOOLONG) => Error::invalid(what("the path is too long")).help("choose a shorter folder"),
        _ => Error::unavailable(what(&error.to_string())),
    };
    told.caused_by(error)
}
