//! The store of this machine: the URL in /etc/leasehold/store.
//!
//! cron, sudo and systemd reset the environment, so a variable does not reach every command of a
//! machine, and this file does. It decides which commands exclude each other, so only root may
//! change it. A file that cannot be used is an error: a command that took another store would run
//! beside the holder.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold::{Error, Result};
use rustix::fs::{Mode, StatVfsMountFlags, statvfs};

pub(crate) const PATH: &str = "/etc/leasehold/store";
/// The owner of the folder could replace the file, so the same rules apply to it.
const FOLDER: &str = "/etc/leasehold";

/// A URL with some comments is far shorter.
const LEN_MAX: u64 = 64 << 10;
/// NixOS needs two links, and a mounted `ConfigMap` too.
const LINKS_MAX: usize = 16;

/// Returns the URL, or `None` if this machine has no such file.
///
/// # Errors
/// Denied if a user other than root may change the file, or if this user may not read it. Invalid
/// if it has no URL, or a URL with a password.
pub(crate) fn read() -> Result<Option<String>> {
    // Kubernetes replaces the target of a link and then removes the old one, which the first
    // attempt may have reached.
    let Some(path) = find().or_else(|_| find())? else {
        return Ok(None);
    };
    let cannot_open = |error| cannot_open(&path, &error);
    let file = File::open(&path).map_err(cannot_open)?;
    // The name may belong to another file by now.
    check(&path, &file.metadata().map_err(cannot_open)?)?;

    let mut bytes = Vec::new();
    file.take(LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::damaged(format!("cannot read {PATH}: {error}")))?;
    url(&bytes).map(Some)
}

/// Finds the file behind links. Every link and every folder on the way is checked as the file is, so
/// nobody but root can lead the way to another file.
fn find() -> Result<Option<PathBuf>> {
    let mut at = PathBuf::from("/etc");
    let mut parts = VecDeque::from(["leasehold", "store"].map(OsString::from));
    let mut links = 0;

    while let Some(part) = parts.pop_front() {
        let path = at.join(part);
        let status = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && links == 0 => return Ok(None),
            status => status.map_err(|error| cannot_open(&path, &error))?,
        };
        check(&path, &status)?;

        if status.is_symlink() && links < LINKS_MAX {
            links += 1;
            let target = fs::read_link(&path).map_err(|error| cannot_open(&path, &error))?;
            for part in target.iter().rev() {
                parts.push_front(part.to_owned());
            }
        } else if status.is_dir() && !parts.is_empty() || status.is_file() && parts.is_empty() {
            at = path;
        } else if status.is_symlink() {
            let error = Error::denied(format!("{PATH} leads through more than {LINKS_MAX} links"));
            return Err(error.help("let it lead to the file"));
        } else {
            let kind = if parts.is_empty() {
                "regular file"
            } else {
                "folder"
            };
            let error = Error::denied(format!("{} is not a {kind}", path.display()));
            return Err(error.help("write the URL into a regular file"));
        }
    }
    Ok(Some(at))
}

/// Refuses what a user other than root may change.
fn check(path: &Path, status: &Metadata) -> Result<()> {
    let shown = path.display();
    if status.uid() != 0 {
        let error = Error::denied(format!("{shown} belongs to the user {}", status.uid()));
        return Err(error.help(format!(
            "run `sudo chown -h root {shown}`; where root is not mapped, in a user namespace, name \
             the store with --store or LEASEHOLD_STORE"
        )));
    }

    // With an ACL, the bits of the group are the most that the ACL allows to anybody.
    let is_open = Mode::from_raw_mode(status.mode()).intersects(Mode::WGRP | Mode::WOTH);
    // A link has no mode of its own.
    if is_open && !status.is_symlink() && !keeps_entries(path, status) {
        let error = Error::denied(format!("users other than root may change {shown}"));
        return Err(error.help(format!("run `sudo chmod go-w {shown}`")));
    }
    Ok(())
}

/// Whether nobody can replace the entries of root in a folder that others may write.
///
/// `/nix/store` and `/tmp` are sticky. Kubernetes mounts a `ConfigMap` with the mode 0777, read-only.
fn keeps_entries(path: &Path, status: &Metadata) -> bool {
    let is_sticky = Mode::from_raw_mode(status.mode()).contains(Mode::SVTX);
    let is_read_only =
        || statvfs(path).is_ok_and(|volume| volume.f_flag.contains(StatVfsMountFlags::RDONLY));
    status.is_dir() && (is_sticky && path != Path::new(FOLDER) || is_read_only())
}

fn cannot_open(path: &Path, error: &io::Error) -> Error {
    let error = Error::denied(format!("cannot open {}: {error}", path.display()));
    error.help("let the users of the locks read it, or name a store with --store")
}

/// Returns the first line that is neither empty nor a comment.
fn url(bytes: &[u8]) -> Result<String> {
    if bytes.len() as u64 > LEN_MAX {
        return Err(Error::invalid(format!(
            "{PATH} is longer than {LEN_MAX} bytes"
        )));
    }
    let text = str::from_utf8(bytes)
        .map_err(|_| Error::invalid(format!("{PATH} is not a text in UTF-8")))?;

    let mut lines = text.lines().map(str::trim);
    let url = lines
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .ok_or_else(|| {
            Error::invalid(format!("{PATH} has no URL"))
                .help("write one line, such as redis://host, or remove the file")
        })?;

    if ["file", "file:"].contains(&url) || url.starts_with("file:?") {
        let error = Error::invalid(format!(
            "the URL in {PATH} names another folder for each user"
        ));
        return Err(error.help("write file:/some/folder, or system:"));
    }
    if has_password(url) {
        let error = Error::invalid(format!("the URL in {PATH} has a password"));
        return Err(error.help(
            "write ?password-file=/path in its place, with a file that only the users of the \
             locks may read",
        ));
    }
    Ok(url.to_owned())
}

/// Whether a URL has a password before its host or in its settings. All users of the locks can read
/// the file, and often all users of the machine.
fn has_password(url: &str) -> bool {
    let (location, settings) = url.split_once('?').unwrap_or((url, ""));
    let user = location
        .split_once("://")
        .and_then(|(_, rest)| rest.rsplit_once('@'));
    let is_password = |setting: &str| {
        let (name, _) = setting.split_once('=').unwrap_or((setting, ""));
        name.ends_with("password")
    };

    user.is_some_and(|(user, _)| user.contains(':')) || settings.split('&').any(is_password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_the_first_line_that_is_no_comment() {
        for text in [
            "redis://a",
            "redis://a\n",
            "\n  # the locks of all machines\r\n\t redis://a \r\nredis://b\n",
        ] {
            assert_eq!(
                url(text.as_bytes()).ok().as_deref(),
                Some("redis://a"),
                "{text}"
            );
        }
    }

    #[test]
    fn text_without_a_url_is_refused() {
        let long = vec![b'#'; usize::try_from(LEN_MAX).expect("small") + 1];
        for bytes in [&b""[..], b"\n \n", b"# redis://a\n", b"redis://\xff", &long] {
            let error = url(bytes).expect_err("no URL");
            assert!(
                error.is_invalid() && error.to_string().contains(PATH),
                "{error}"
            );
        }
    }

    #[test]
    fn folder_of_each_user_is_refused() {
        for text in ["file", "file:", "file:?mode=0660"] {
            let error = url(text.as_bytes()).expect_err(text);
            assert!(error.to_string().contains("file:/some/folder"), "{error}");
        }
    }

    #[test]
    fn password_in_the_url_is_refused_and_not_shown() {
        for text in [
            "redis://me:secret@a",
            "redis://:secret@a:6379/1",
            "redis://me:12/secret@a",
            "redis+sentinel://me:s@cret@a,b/m",
            "zookeeper+tls://me:secret@a",
            "redis://a?password=secret",
            "redis+sentinel://a/m?db=1&sentinel-password=secret",
        ] {
            let error = url(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains("?password-file="), "{error}");
            assert!(!error.contains("cret"), "{error}");
        }
        for text in [
            "file:/srv/a:b@c",
            "redis://me@a?password-file=/etc/leasehold/password",
            "redis://a:6379?ca=/x@y",
        ] {
            assert_eq!(url(text.as_bytes()).ok().as_deref(), Some(text));
        }
    }
}
