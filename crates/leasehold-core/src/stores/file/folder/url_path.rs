//! The folder that a `file:` URL names.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

use crate::local_fs::user_shown;
use crate::stray_character;
use crate::{Error, Result};

/// Returns the path that a `file:` URL names after the colon. An empty path means the user's state
/// folder.
pub(crate) fn path_of_url(path: &str) -> Result<PathBuf> {
    stray_character::check("the path of the folder", path)?;
    let path = match path.strip_prefix("//localhost/") {
        Some(_) => &path["//localhost".len()..],
        None => path,
    };
    if path.is_empty() {
        let folder = state_folder()?;
        return check_home(&folder).map(|()| folder);
    }
    let is_root = |part| !matches!(part, Component::Normal(_));
    if path.starts_with('/') && Path::new(path).components().all(is_root) {
        let error = Error::invalid("the URL names the root folder of this machine");
        return Err(error.help("write file:/some/folder"));
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
    if let Some(state) = absolute_in("XDG_STATE_HOME")? {
        return Ok(state.join("leasehold"));
    }
    let home = absolute_in("HOME")?.ok_or_else(|| {
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

/// Returns the absolute path that a variable has. White space in front of it would make it a relative
/// one, which counts as none.
fn absolute_in(variable: &str) -> Result<Option<PathBuf>> {
    let Some(path) = std::env::var_os(variable).map(PathBuf::from) else {
        return Ok(None);
    };
    stray_character::check(variable, &path.to_string_lossy())?;
    Ok(Some(path).filter(|path| path.is_absolute()))
}

/// Refuses to make the state folder of another user as root, who may have that user's environment.
/// The folders on the way would be root's, and closed to their user and all other programs.
fn check_home(folder: &Path) -> Result<()> {
    let mut found = folder.ancestors().map(std::fs::metadata);
    let owner = found.find_map(|status| Some(status.ok()?.uid()));
    let Some(owner) = owner.filter(|owner| *owner != ROOT) else {
        return Ok(());
    };
    if !geteuid().is_root() || folder.exists() {
        return Ok(());
    }

    let message = format!(
        "{} would be root's in a folder of {}, who could not use it",
        folder.display(),
        user_shown(owner)
    );
    Err(Error::denied(message).help(
        "name a folder, such as --store file:/some/folder, or run it as that user, or with root's \
         own HOME (sudo -H)",
    ))
}

const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G-35.
    #[test]
    fn path_that_names_another_folder_than_meant_is_refused() {
        for (path, part) in [
            ("/srv/locks ", "a space (U+0020) at its end"),
            ("/srv/locks\r", "a carriage return (U+000D) at its end"),
            (" /srv/locks", "a space (U+0020) at its beginning"),
            ("/srv/lo\ncks", "a line feed (U+000A); "),
            ("/", "the root folder"),
            ("///", "the root folder"),
            ("//localhost/", "the root folder"),
            ("/..", "the root folder"),
            ("/./", "the root folder"),
        ] {
            let error = path_of_url(path).expect_err(path);
            assert!(
                error.is_invalid() && error.to_string().contains(part),
                "{error}"
            );
        }
        for path in ["/srv/my locks", "/srv/ /a", "/srv/%20", "/srv/#1"] {
            assert_eq!(path_of_url(path).ok(), Some(PathBuf::from(path)));
        }
    }

    #[test]
    fn folder_of_a_builder_is_refused_as_one_of_a_url_is() {
        let folder = Path::new("/nowhere/locks\n");
        let error = crate::stores::File::at(folder).expect_err("no folder of this name");
        assert!(error.is_invalid(), "{error:?}");
        assert!(
            error
                .to_string()
                .contains("a line feed (U+000A) at its end"),
            "{error}"
        );
    }
}
