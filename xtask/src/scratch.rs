//! The folder in which tests write.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// What a whole run of the tests writes at most at one time, in KiB.
const NEEDED: u64 = 4 << 20;

/// A folder for a run of the tests. It is deleted at the end of the run.
///
/// The lab kills processes and never the machine, so no test needs a disk. A disk that other
/// machines share can need seconds for an `fsync`, and the tests would measure that. So the folder
/// is in memory where there is enough of it.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Creates the folder.
    pub(crate) fn create() -> Result<Self> {
        let is_in_memory = free_memory(&listing(MEMORY)).is_some_and(|free| free >= NEEDED);

        Self::in_folder(is_in_memory.then_some(Path::new(MEMORY)))
    }

    fn in_folder(parent: Option<&Path>) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("leasehold-test-");
        let folder = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        };

        folder
            .map(Self)
            .context("cannot create a folder for the tests")
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> String {
        self.0.path().to_string_lossy().into_owned()
    }
}

/// What df(1) prints about the file system of `path`. Empty if it fails.
fn listing(path: &str) -> String {
    let output = Command::new("df")
        .args(["--output=fstype,avail", path])
        .output();

    output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// How much of a tmpfs is free, in KiB. None if the file system is another one.
fn free_memory(listing: &str) -> Option<u64> {
    let mut words = listing.lines().nth(1)?.split_whitespace();

    if words.next()? != "tmpfs" {
        return None;
    }
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tmpfs_is_memory() {
        assert_eq!(
            free_memory("Type   Avail\ntmpfs 5000000\n"),
            Some(5_000_000)
        );
        assert_eq!(free_memory("Type   Avail\next4  5000000\n"), None);
        assert_eq!(free_memory(""), None);
        assert!(free_memory(&listing("/proc")).is_none());
    }

    #[test]
    fn folder_is_deleted_at_the_end() -> Result<()> {
        let scratch = Scratch::create()?;
        let path = scratch.path();
        assert!(Path::new(&path).is_dir(), "{path}");

        drop(scratch);
        assert!(!Path::new(&path).exists(), "{path}");
        Ok(())
    }
}
