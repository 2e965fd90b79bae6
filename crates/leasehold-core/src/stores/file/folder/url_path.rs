//! The folder that a `file:` URL names.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::{Error, Result};

/// Returns the path that a `file:` URL names after the colon. An empty path means the user's state
/// folder.
pub(crate) fn path_of_url(path: &str) -> Result<PathBuf> {
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
    const HELP: &str = "name a folder: file:/some/folder";
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("leasehold"));
    }
    let home = absolute("HOME").ok_or_else(|| {
        Error::invalid("neither XDG_STATE_HOME nor HOME names the folder of this user's files")
            .help(HELP)
    })?;
    // A service without a home, or a mistake: nobody would look for locks there.
    if std::fs::metadata(&home).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let message = format!(
            "the folder {}, which HOME names, does not exist",
            home.display()
        );
        return Err(Error::invalid(message).help(HELP));
    }
    Ok(home.join(".local/state/leasehold"))
}
