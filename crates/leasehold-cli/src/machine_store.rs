//! The store of this machine: the URL in /etc/leasehold/store.
//!
//! cron, sudo and systemd reset the environment, so a variable does not reach every command of a
//! machine, and this file does. It decides which commands exclude each other, so only root may
//! change it. A file that cannot be used is an error: a command that took another store would run
//! beside the holder.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use leasehold::{Error, Result};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

pub(crate) const PATH: &str = "/etc/leasehold/store";
/// The owner of the folder could replace the file, so the same rules apply to it.
const FOLDER: &str = "/etc/leasehold";
const NAME: &str = "store";

/// A URL with some comments is far shorter.
const LEN_MAX: u64 = 64 << 10;

/// Returns the URL, or `None` if this machine has no such file.
///
/// # Errors
/// Denied if a user other than root may change the file, or if this user may not read it. Invalid
/// if it has no URL, or a URL with a password.
pub(crate) fn read() -> Result<Option<String>> {
    let Some(folder) = open(CWD, FOLDER, OFlags::PATH, FOLDER)? else {
        return Ok(None);
    };
    check(&folder, FOLDER, FileType::Directory)?;

    // Without NONBLOCK, opening a FIFO waits for its writer.
    let Some(file) = open(&folder, NAME, OFlags::RDONLY | OFlags::NONBLOCK, PATH)? else {
        return Ok(None);
    };
    check(&file, PATH, FileType::RegularFile)?;

    let mut bytes = Vec::new();
    let mut file = File::from(file).take(LEN_MAX + 1);
    file.read_to_end(&mut bytes)
        .map_err(|error| Error::damaged(format!("cannot read {PATH}: {error}")))?;
    url(&bytes).map(Some)
}

/// Opens what has this name, and not what a link leads to. Returns `None` if the name is missing.
fn open(folder: impl AsFd, name: &str, flags: OFlags, path: &str) -> Result<Option<OwnedFd>> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(wrong_kind(path, FileType::RegularFile)),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => {
            let error = Error::denied(format!("cannot open {path}: {error}"));
            Err(error.help("let the users of the locks read it, or name a store with --store"))
        }
        Err(error) => Err(Error::damaged(format!("cannot open {path}: {error}"))),
    }
}

/// Refuses what a user other than root may change. The opened descriptor is checked, because the
/// name may belong to another file by now.
fn check(opened: impl AsFd, path: &str, kind: FileType) -> Result<()> {
    let status =
        fstat(opened).map_err(|error| Error::damaged(format!("cannot examine {path}: {error}")))?;

    if FileType::from_raw_mode(status.st_mode) != kind {
        return Err(wrong_kind(path, kind));
    }
    if status.st_uid != 0 {
        let error = Error::denied(format!("{path} belongs to the user {}", status.st_uid));
        return Err(error.help(format!("run `sudo chown root {path}`")));
    }
    // With an ACL, the bits of the group are the most that the ACL allows to anybody.
    if Mode::from_raw_mode(status.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        let error = Error::denied(format!("users other than root may change {path}"));
        return Err(error.help(format!("run `sudo chmod go-w {path}`")));
    }
    Ok(())
}

fn wrong_kind(path: &str, kind: FileType) -> Error {
    let kind = match kind {
        FileType::Directory => "folder",
        _ => "regular file",
    };
    Error::denied(format!("{path} is not a {kind}")).help("a symbolic link is not followed")
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

    if url == "file:" || url.starts_with("file:?") {
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
        for text in ["file:", "file:?mode=0660"] {
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
