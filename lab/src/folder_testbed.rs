//! A place of its own for a test.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use leasehold::{LockState, Locks};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{Event, EventKind, Process, WorkerConfig, hostile_names, now, until};

/// A store, takers for it, and an onlooker.
#[derive(Debug)]
pub struct FolderTestbed {
    worker: PathBuf,
    url: String,
    folder: TempDir,
    runtime: Runtime,
    locks: Locks,
    next_thread: Cell<u32>,
    scratch_files: Cell<u32>,
    /// Where the file store is, if not in the folder.
    disk: Option<Disk>,
}

/// A folder where something is mounted.
#[derive(Debug)]
pub(crate) struct Disk(pub(crate) TempDir);

impl Drop for Disk {
    fn drop(&mut self) {
        // If it cannot be done, the machine keeps a mount of a few KiB, and its folder.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
    }
}

impl FolderTestbed {
    /// One with a file store in a temporary folder; `worker` is the path of the program, which only a test knows.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(worker: &str) -> Result<Self> {
        let folder = temporary()?;
        let url = format!("file:{}/store", folder.path().display());
        Self::with(worker, folder, url)
    }

    /// One with a file store in a folder where a file system is mounted, which is unmounted in the end.
    ///
    /// # Errors
    /// If the store cannot be made.
    pub(crate) fn mounted(worker: &str, disk: Disk) -> Result<Self> {
        let url = format!("file:{}/store", disk.0.path().display());
        let mut testbed = Self::with(worker, temporary()?, url)?;
        testbed.disk = Some(disk);
        Ok(testbed)
    }

    /// One with a store that is somewhere else.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn at(worker: &str, url: &str) -> Result<Self> {
        Self::with(worker, temporary()?, url.to_owned())
    }

    fn with(worker: &str, folder: TempDir, url: String) -> Result<Self> {
        fs::create_dir(folder.path().join("notes"))?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let locks = runtime.block_on(leasehold::open(&url))?;
        Ok(Self {
            worker: worker.into(),
            url,
            folder,
            runtime,
            locks,
            next_thread: Cell::new(0),
            scratch_files: Cell::new(0),
            disk: None,
        })
    }

    /// The URL of the store.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The folder of a file store.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        let folder = self.disk.as_ref().map_or(&self.folder, |disk| &disk.0);
        folder.path().join("store")
    }

    /// A path of its own, outside the store.
    #[must_use]
    pub fn scratch_file(&self) -> PathBuf {
        self.scratch_files.set(self.scratch_files.get() + 1);
        self.folder
            .path()
            .join(format!("notes/{}", self.scratch_files.get()))
    }

    /// What `flock(1)` locks for a name.
    #[must_use]
    pub fn lock_file(&self, name: &str) -> PathBuf {
        self.store().join(format!("{name}.lock"))
    }

    /// Starts a taker here; its hands get numbers of their own.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, config: WorkerConfig) -> Result<Process> {
        Process::start(&self.worker, self.local_store(config))
    }

    /// As [`start`](Self::start), with the events read at the end only.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_recording(&self, config: WorkerConfig) -> Result<Process> {
        Process::start_recording(&self.worker, self.local_store(config), self.scratch_file())
    }

    fn local_store(&self, config: WorkerConfig) -> WorkerConfig {
        let first_thread = self.next_thread.get();
        self.next_thread.set(first_thread + config.threads);
        let store = if config.store.is_empty() {
            self.url()
        } else {
            config.store
        };
        WorkerConfig {
            store,
            first_thread,
            ..config
        }
    }

    /// The store as this process has it open.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Runs a future of the library.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The line of a name now.
    ///
    /// # Errors
    /// As the store says.
    pub fn inspect(&self, name: &str) -> Result<LockState> {
        Ok(self.run(self.locks.inspect(name))?)
    }

    /// Waits until a hand is in the line and does not hold.
    ///
    /// # Errors
    /// If it is not seen.
    pub fn wait_until_waiting(&self, name: &str, thread: u32) -> Result<Event> {
        let label = thread.to_string();
        until(&format!("hand {thread} to wait"), || {
            let lock_state = self.inspect(name)?;
            Ok(lock_state
                .waiters()
                .any(|entry| entry.info.label == label)
                .then_some(()))
        })?;
        Ok(Event {
            at: now(),
            thread,
            name: 0,
            kind: EventKind::ObservedWaiting,
        })
    }

    /// Nobody is in these lines.
    ///
    /// # Errors
    /// If somebody is, saying who.
    pub fn check_empty(&self, names: &[String]) -> Result<()> {
        for name in names {
            let lock_state = self.inspect(name)?;
            ensure!(
                lock_state.entries.is_empty(),
                "left in line: {lock_state:?}"
            );
        }
        Ok(())
    }

    /// All takers of a file store are gone, and so is everything of theirs: in line nobody, in the folder the two files of
    /// each name.
    ///
    /// # Errors
    /// If anything is left, saying what.
    pub fn check_clean(&self, names: &[String]) -> Result<()> {
        self.check_empty(names)?;
        let unexpected = self.unexpected_files(names)?;
        ensure!(unexpected.is_empty(), "left in the folder: {unexpected:?}");
        // What was killed while joining has left an inbox that is swept when a minute old.
        until("the inboxes of the dead to be swept", || {
            Ok((self.members()? <= 2).then_some(()))
        })
    }

    /// Files in the folder that are not of these names.
    fn unexpected_files(&self, names: &[String]) -> Result<Vec<String>> {
        let mut unexpected = Vec::new();
        for entry in fs::read_dir(self.store())? {
            let file = entry?
                .file_name()
                .into_string()
                .ok()
                .context("all names here are text")?;
            if file != ".members" && !is_of(&file, names) {
                unexpected.push(file);
            }
        }
        Ok(unexpected)
    }

    /// How many inboxes there are. Whoever joins sweeps away those of the dead, so somebody does: the onlooker's and the
    /// newcomer's own are counted.
    fn members(&self) -> Result<usize> {
        let _newcomer = self.run(leasehold::open(&self.url()))?;
        count_fifos(&self.store().join(".members"))
    }
}

/// Whether a file is of one of these names: a long one goes on in a folder.
fn is_of(file: &str, names: &[String]) -> bool {
    if let Some(begin) = file.strip_suffix('+') {
        return names
            .iter()
            .any(|name| name.starts_with(&hostile_names::decoded(begin)));
    }
    let name = [".lock", ".queue"]
        .iter()
        .find_map(|end| file.strip_suffix(end))
        .map(hostile_names::decoded);
    name.is_some_and(|name| names.contains(&name))
}

fn temporary() -> Result<TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("leasehold-lab-")
        .tempdir()?)
}

fn count_fifos(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        ensure!(
            entry.file_type()?.is_fifo(),
            "{} is no inbox",
            entry.path().display()
        );
        count += 1;
    }
    Ok(count)
}
