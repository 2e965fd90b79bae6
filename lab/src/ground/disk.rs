//! A disk that is soon full.

use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::Site;

/// In KiB: enough for a dozen locks.
const SIZE: u32 = 256;

/// A file store on a file system of its own that holds little.
///
/// # Errors
/// If one may not mount: the lab must be root, or run by `unshare --map-root-user --mount`.
pub(super) fn small(taker: &str) -> Result<Site> {
    let folder = tempfile::Builder::new().prefix("leasehold-disk-").tempdir()?;
    mount(&folder)?;
    Site::mounted(taker, folder)
}

fn mount(folder: &TempDir) -> Result<()> {
    let options = format!("size={SIZE}k");
    let done = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(folder.path()).output()?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "cannot mount a small disk (try `unshare --map-root-user --mount …`): {why}");
    Ok(())
}
