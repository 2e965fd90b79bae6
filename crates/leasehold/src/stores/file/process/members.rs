//! The files in `.members`, and the processes that have them open.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, unlinkat};
use rustix::io::Errno;

use crate::stores::file::folder::PENDING;
use crate::stores::file::folder::directory::{Directory, is_abandoned};
use crate::stores::file::folder::location::Location;

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

    fn is_fifo(&self, descriptor: &DirEntry) -> bool {
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

        let at = members.file(name);
        if is_stale(&at, name.starts_with(PENDING)) {
            let _ = unlinkat(members, name, AtFlags::empty());
        }
    }
}

/// Whether a file is a FIFO without a reader, or was begun a long time ago and never finished.
fn is_stale(at: &Location, is_pending: bool) -> bool {
    let Ok(Some(status)) = at.stat() else {
        return false;
    };

    match FileType::from_raw_mode(status.st_mode) {
        _ if is_pending && !is_abandoned(&status) => false,
        FileType::Fifo => at.open(OFlags::WRONLY | OFlags::NONBLOCK).err() == Some(Errno::NXIO),
        FileType::RegularFile => is_pending,
        _ => false,
    }
}
