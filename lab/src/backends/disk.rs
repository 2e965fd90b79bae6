//! A small disk that a test can fill.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

/// In KiB: enough for a dozen locks.
pub(super) const FOLDER_SIZE: u32 = 256;
/// In KiB: enough for some minutes of a server's append-only file.
pub(super) const SERVER_SIZE: u32 = 64 * 1024;
/// In KiB: enough for an empty database and its log.
pub(super) const POSTGRES_SIZE: u32 = 192 * 1024;

/// A folder with a small file system mounted on it. Dropping it unmounts the file system.
#[derive(Debug)]
pub(crate) struct Disk(TempDir);

impl Disk {
    /// Mounts a file system of `size` KiB.
    ///
    /// # Errors
    /// If the process may not mount: the lab must run as root or under
    /// `unshare --map-root-user --mount`.
    pub(super) fn mount(size: u32) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-disk-")
            .tempdir()?;
        let options = format!("size={size}k");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(folder.path())
            .output()?;

        ensure!(
            done.status.success(),
            "cannot mount a small disk (try `unshare --map-root-user --mount …`): {}",
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If umount fails, the machine keeps a mount of a few KiB and its folder.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}
