//! A disk that is soon full.

use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::FolderTestbed;
use crate::folder_testbed::Disk;

/// In KiB: enough for a dozen locks.
const SIZE: u32 = 256;
/// In KiB: enough for some minutes of what a server writes.
const SERVER_SIZE: u32 = 64 * 1024;

/// A file store on a file system of its own that holds little.
///
/// # Errors
/// If one may not mount: the lab must be root, or run by `unshare --map-root-user --mount`.
pub(super) fn small(worker: &str) -> Result<FolderTestbed> {
    FolderTestbed::mounted(worker, disk(SIZE)?)
}

/// One for a server.
///
/// # Errors
/// As [`small`].
pub(super) fn of_server() -> Result<Disk> {
    disk(SERVER_SIZE)
}

fn disk(size: u32) -> Result<Disk> {
    let folder = tempfile::Builder::new()
        .prefix("leasehold-disk-")
        .tempdir()?;
    mount(&folder, size)?;
    Ok(Disk(folder))
}

fn mount(folder: &TempDir, size: u32) -> Result<()> {
    let options = format!("size={size}k");
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &options, "none"])
        .arg(folder.path())
        .output()?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "cannot mount a small disk (try `unshare --map-root-user --mount …`): {why}"
    );
    Ok(())
}
