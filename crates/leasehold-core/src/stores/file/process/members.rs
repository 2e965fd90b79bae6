//! The files in `.members`, and the processes that have them open.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, unlinkat};
use rustix::io::Errno;

use crate::stores::file::folder::location::Location;
use crate::stores::file::folder::names::{PENDING, is_member};
use crate::stores::file::folder::object::OpenError;
use crate::stores::file::folder::{Folder, is_abandoned};

/// The FIFOs of a store, to find out which processes use it.
pub(crate) struct Members(HashSet<FileId>);

/// The device and the inode of a file.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(status: &Stat) -> FileId {
    (status.st_dev, status.st_ino)
}

impl Members {
    /// Reads the FIFOs. What cannot be read is left out.
    pub(crate) fn read(folder: &Arc<Folder>) -> Self {
        let fifos = files(folder)
            .filter_map(|(_, at)| at.stat().ok()?)
            .map(|status| file_id(&status));
        Self(fifos.collect())
    }

    /// Whether a process has opened the store. False for a process of another user, unless this
    /// one is root.
    ///
    /// A process that inherited the FIFO, such as COMMAND, does not count. Its descriptor lacks
    /// `O_CLOEXEC`.
    pub(crate) fn has(&self, pid: u32) -> bool {
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

fn closes_on_exec(info: &Path) -> bool {
    const O_CLOEXEC: u32 = 0o2_000_000;

    flags(info).is_some_and(|flags| flags & O_CLOEXEC != 0)
}

/// Reads the flags of a descriptor, in a line such as `flags: 02004002`.
pub(crate) fn flags(info: &Path) -> Option<u32> {
    let text = fs::read_to_string(info).ok()?;
    let mut lines = text.lines();
    let flags = lines.find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(flags.trim(), 8).ok()
}

/// Removes the files of dead processes. A file that cannot be removed does no harm, and the next
/// process that joins tries again.
pub(crate) fn remove_stale(folder: &Arc<Folder>) {
    for (name, at) in files(folder) {
        if is_stale(&at, &name) {
            let _ = unlinkat(folder.members(), &name, AtFlags::empty());
        }
    }
}

/// The files in `.members`. What cannot be read is left out.
fn files(folder: &Arc<Folder>) -> impl Iterator<Item = (String, Location)> {
    let entries = Dir::read_from(folder.members()).into_iter().flatten();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
        // leasehold makes none, and `.` and `..` are not files.
        .filter(|name| !name.starts_with('.'))
        .map(|name| {
            let at = Location::member(folder, &name);
            (name, at)
        })
}

/// Whether a file is a FIFO without a reader, or was begun a long time ago and never finished.
fn is_stale(at: &Location, name: &str) -> bool {
    let Ok(Some(status)) = at.stat() else {
        return false;
    };
    let file_type = FileType::from_raw_mode(status.st_mode);
    if !is_member(name, file_type) {
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
