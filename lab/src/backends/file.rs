//! The file store.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Capability::{FifoQueue, Folder, ImmediateRemoval, SmallDisk};
use super::{Backend, CANARY, Disk, disk};
use crate::faults::Requirement;
use crate::{Testbed, hostile_names, until};

const LEASE: Duration = Duration::from_millis(1_500);

/// `file:`
pub(super) const FILE: Backend = Backend {
    name: "file",
    lease: LEASE,
    requested_lease: LEASE,
    cohort: None,
    recovery_seconds: 5,
    token_slack: 0,
    load_min: 20.0,
    has: &[&[Folder, SmallDisk, FifoQueue, ImmediateRemoval]],
    start: |worker, requires| match requires {
        Requirement::SmallDisk => start_on_small_disk(worker),
        _ => start(worker),
    },
    wait_until_ready: |_| Ok(()),
    plant: |testbed| Ok(fs::write(canary(testbed), CANARY)?),
    verify_and_remove,
    count_entries: |testbed| count_files(&folder(testbed)),
    check_clean: |_, testbed, last| check_clean(testbed, &last.names),
};

/// Starts a testbed with a store in a temporary folder.
///
/// # Errors
/// If the folder cannot be created.
pub fn start(worker: &str) -> Result<Testbed> {
    let folder = tempfile::Builder::new()
        .prefix("leasehold-lab-")
        .tempdir()?;
    let url = url_in(folder.path());
    Testbed::with_servers(worker, url, Vec::new(), Some(folder))
}

fn start_on_small_disk(worker: &str) -> Result<Testbed> {
    let disk = Disk::mount(disk::FOLDER_SIZE)?;
    let mut testbed = Testbed::at(worker, &url_in(disk.path()))?;
    testbed.disk = Some(disk);
    Ok(testbed)
}

fn url_in(folder: &Path) -> String {
    format!("file:{}/store", folder.display())
}

/// The folder of the store.
#[must_use]
pub fn folder(testbed: &Testbed) -> PathBuf {
    testbed.url().trim_start_matches("file:").into()
}

/// The file of a name that `flock(1)` locks.
#[must_use]
pub fn lock_file(testbed: &Testbed, name: &str) -> PathBuf {
    folder(testbed).join(format!("{name}.lock"))
}

fn verify_and_remove(testbed: &Testbed) -> Result<usize> {
    let file = canary(testbed);
    if !file.exists() {
        return Ok(1);
    }

    let text = fs::read_to_string(&file)?;
    ensure!(text == CANARY, "the canary file was changed: {text:?}");
    fs::remove_file(file)?;
    Ok(0)
}

/// Checks that the queues are empty and that the folder has only the files of each name.
///
/// # Errors
/// If anything else is left behind.
pub fn check_clean(testbed: &Testbed, names: &[String]) -> Result<()> {
    testbed.check_empty(names)?;
    let unexpected = unexpected_files(testbed, names)?;
    ensure!(
        unexpected.is_empty(),
        "left behind in the folder: {unexpected:?}"
    );

    // A worker that was killed while it joined leaves an inbox. It is swept when a minute old.
    until("the inboxes of dead workers to be swept", || {
        Ok((members(testbed)? <= 2).then_some(()))
    })
}

fn canary(testbed: &Testbed) -> PathBuf {
    folder(testbed).join("canary.txt")
}

/// The files in the folder that belong to none of these names.
fn unexpected_files(testbed: &Testbed, names: &[String]) -> Result<Vec<String>> {
    let mut unexpected = Vec::new();
    for entry in fs::read_dir(folder(testbed))? {
        let file = entry?
            .file_name()
            .into_string()
            .ok()
            .context("all file names here are text")?;
        let is_shared = [".members", ".counter"].contains(&file.as_str());
        if !is_shared && !is_of(&file, names) {
            unexpected.push(file);
        }
    }
    Ok(unexpected)
}

/// Whether a file belongs to one of these names. A long name continues in a folder.
fn is_of(file: &str, names: &[String]) -> bool {
    if let Some(begin) = file.strip_suffix('+') {
        let begin = hostile_names::decoded(begin);
        return names.iter().any(|name| name.starts_with(&begin));
    }
    let name = [".lock", ".queue", ".record"]
        .iter()
        .find_map(|end| file.strip_suffix(end))
        .map(hostile_names::decoded);
    name.is_some_and(|name| names.contains(&name))
}

/// Counts the inboxes. A process that joins sweeps the inboxes of dead processes, so this opens the
/// store once more: two inboxes belong to the inspecting client and to the new one.
fn members(testbed: &Testbed) -> Result<usize> {
    let _newcomer = testbed.run(leasehold::open(&testbed.url()))?;
    count_fifos(&folder(testbed).join(".members"))
}

fn count_fifos(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        ensure!(
            entry.file_type()?.is_fifo(),
            "{} is not an inbox",
            entry.path().display()
        );
        count += 1;
    }
    Ok(count)
}

fn count_files(folder: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file may be removed between the two calls.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        count += 1;
        if is_folder {
            count += count_files(&entry.path())?;
        }
    }
    Ok(count)
}
