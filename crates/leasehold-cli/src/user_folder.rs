//! The folders in which this user keeps what commands leave for later commands.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the folders that exist and belong to this user, the preferred one first.
///
/// `sudo` and `su` may leave the variables of the caller in the environment: what root writes into
/// the folder of another user, that user could replace.
pub(crate) fn candidates() -> impl Iterator<Item = PathBuf> {
    let own = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute() && is_own(path))
    };
    let state =
        move || own("XDG_STATE_HOME").or_else(|| Some(own("HOME")?.join(".local").join("state")));
    own("XDG_RUNTIME_DIR").into_iter().chain(state())
}

fn is_own(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|status| status.is_dir() && status.uid() == own)
}
