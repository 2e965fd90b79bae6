//! The files in `.members`, and the processes that have them open.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, OFlags, statat, unlinkat};
use rustix::io::Errno;

use crate::stores::file::folder::PENDING;
use crate::stores::file::folder::directory::{Directory, is_abandoned};
use crate::stores::file::folder::location::Location;
use crate::stores::file::folder::object::OpenError;

/// The FIFOs of a store, to find out which processes use it.
pub(in crate::stores::file) struct Members(HashSet<FileId>);

/// The device and the inode of a file.
type FileId = (u64, u64);

impl Members {
    /// Reads the FIFOs. What cannot be read is left out.
    pub(in crate::stores::file) fn read(members: &Arc<Directory>) -> Self {
        let entries = Dir::read_from(members).into_iter().flatten().flatten();
        let status = |name: &str| members.file(name).stat().ok().flatten();

        let fifos = entries
            .filter(|entry| entry.file_type() != FileType::Directory)
            .filter_map(|entry| status(entry.file_name().to_str().ok()?))
            .map(|status| (status.st_dev, status.st_ino));
        Self(fifos.collect())
    }

    /// Whether a process has opened the store. False for a process of another user, unless this
    /// one is root.
    ///
    /// A process that inherited the FIFO, such as COMMAND, does not count. Its descriptor lacks
    /// `O_CLOEXEC`.
    pub(in crate::stores::file) fn has(&self, pid: u32) -> bool {
        let process = Path::new("/proc").join(pid.to_string());
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();

        descriptors
            .flatten()
            .filter(|descriptor| self.is_fifo(descriptor))
            .any(|descriptor| closes_on_exec(&process.join("fdinfo").join(descriptor.file_name())))
    }

    fn is_fifo(&self, descriptor: &fs::DirEntry) -> bool {
        // It follows the link to the open file.
        fs::metadata(descriptor.path()).is_ok_and(|status| {
            status.file_type().is_fifo() && self.0.contains(&(status.dev(), status.ino()))
        })
    }
}

/// Reads the flags of a descriptor, in a line such as `flags: 02004002`.
fn closes_on_exec(info: &Path) -> bool {
    const O_CLOEXEC: u32 = 0o2_000_000;

    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & O_CLOEXEC != 0)
}

/// Removes the files of dead processes. A file that cannot be removed does no harm, and the next
/// process that joins tries again.
pub(in crate::stores::file) fn remove_stale(members: &Arc<Directory>) {
    let Ok(entries) = Dir::read_from(members) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }

        if is_stale(&members.file(name), name) {
            let _ = unlinkat(members, name, AtFlags::empty());
        }
    }
}

/// Whether a file is a FIFO without a reader, or was begun a long time ago and never finished.
fn is_stale(at: &Location, name: &str) -> bool {
    let Ok(Some(status)) = at.stat() else {
        return false;
    };
    let file_type = FileType::from_raw_mode(status.st_mode);
    if !is_own(name, file_type) {
        return false;
    }

    // A regular file with two names was finished, and its process was killed before it removed
    // this one.
    let is_pending = name.starts_with(PENDING);
    if is_pending && status.st_nlink == 1 && !is_abandoned(&status) {
        return false;
    }
    let without_reader = Some(OpenError::Kernel(Errno::NXIO));
    file_type != FileType::Fifo || at.open(FileType::Fifo, OFlags::WRONLY).err() == without_reader
}

/// Whether a directory has only what leasehold makes in `.members`, or nothing.
pub(in crate::stores::file) fn has_only_members(directory: &OwnedFd) -> bool {
    let is_member = |entry: &DirEntry| {
        let status = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        let name = entry.file_name().to_str().unwrap_or_default();
        [".", ".."].contains(&name)
            || status.is_ok_and(|status| is_own(name, FileType::from_raw_mode(status.st_mode)))
    };
    Dir::read_from(directory)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_member(&entry))))
}

/// Whether leasehold makes entries with this name and type.
fn is_own(name: &str, file_type: FileType) -> bool {
    let is_id = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.strip_prefix(PENDING) {
        Some(id) => is_id(id) && [FileType::Fifo, FileType::RegularFile].contains(&file_type),
        None => is_id(name) && file_type == FileType::Fifo,
    }
}
