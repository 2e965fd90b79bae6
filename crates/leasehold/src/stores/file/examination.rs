//! Risks to the locks in a folder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

use crate::examination::{Examination, Finding};
use crate::local_fs::system_number;

/// Examines the folder of a store that can be opened.
pub(crate) fn examine(folder: &Path) -> Examination {
    let findings = [file_system(folder), space(folder), other_users(folder)];
    let mut examination = Examination::default();
    examination.findings.extend(findings.into_iter().flatten());
    for finding in &mut examination.findings {
        finding.server = folder.display().to_string();
    }
    examination
}

fn file_system(folder: &Path) -> Option<Finding> {
    /// The numbers of statfs(2).
    const OVERLAY: u32 = 0x794C_7630;
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58F6;

    let opened = std::fs::File::open(folder).ok()?;
    match system_number(&opened, folder).ok()? {
        OVERLAY => Some(Finding::warning(
            "overlay",
            "the folder is in an overlay file system, as the root of a container is: other \
             containers see another folder",
            "mount a volume of the machine there, the same one in each container",
        )),
        TMPFS | RAMFS => Some(Finding::warning(
            "memory-file-system",
            "the folder is in memory: after a restart of the machine, tokens continue from the \
             clock",
            "use a folder on a disk, if a resource checks tokens and the clock may be set back",
        )),
        _ => None,
    }
}

fn space(folder: &Path) -> Option<Finding> {
    let status: StatVfs = statvfs(folder).ok()?;
    let bytes = status.f_bavail.saturating_mul(status.f_frsize);
    // Some file systems have no fixed number of files, and report 0.
    let has_files = status.f_files == 0 || status.f_favail > FILES_MIN;
    if bytes > BYTES_MIN && has_files {
        return None;
    }
    let mib = bytes >> 20;
    let message = format!("the disk has {mib} MiB and {} files left", status.f_favail);
    let remedy = "free some space: without it, no lock can be acquired";
    Some(Finding::warning("disk-full", message, remedy))
}

fn other_users(folder: &Path) -> Option<Finding> {
    let mode = std::fs::metadata(folder).ok()?.mode();
    (mode & 0o002 != 0).then(|| {
        let message = format!("every user of the machine may write to the folder (mode {mode:o})");
        let remedy = "chmod o-w, and a group for the users that share the locks";
        Finding::warning("world-writable", message, remedy)
    })
}

const BYTES_MIN: u64 = 16 << 20;
const FILES_MIN: u64 = 1_000;
