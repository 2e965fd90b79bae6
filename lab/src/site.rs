//! A place of its own for a test.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use leasehold::{Line, Locks};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{Event, Orders, Process, What, hostile, now, until};

/// A store, takers for it, and an onlooker.
#[derive(Debug)]
pub struct Site {
    taker: PathBuf,
    url: String,
    folder: TempDir,
    runtime: Runtime,
    locks: Locks,
    hands: Cell<u32>,
    notes: Cell<u32>,
    /// Where the file store is, if not in the folder.
    disk: Option<Disk>,
}

/// A folder where something is mounted.
#[derive(Debug)]
pub(crate) struct Disk(pub(crate) TempDir);

impl Drop for Disk {
    fn drop(&mut self) {
        // If it cannot be done, the machine keeps a mount of a few KiB, and its folder.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

impl Site {
    /// One with a file store in a temporary folder; `taker` is the path of the program, which only a test knows.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(taker: &str) -> Result<Self> {
        let folder = temporary()?;
        let url = format!("file:{}/store", folder.path().display());
        Self::with(taker, folder, url)
    }

    /// One with a file store in a folder where a file system is mounted, which is unmounted in the end.
    ///
    /// # Errors
    /// If the store cannot be made.
    pub(crate) fn mounted(taker: &str, disk: Disk) -> Result<Self> {
        let url = format!("file:{}/store", disk.0.path().display());
        let mut site = Self::with(taker, temporary()?, url)?;
        site.disk = Some(disk);
        Ok(site)
    }

    /// One with a store that is somewhere else.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn at(taker: &str, url: &str) -> Result<Self> {
        Self::with(taker, temporary()?, url.to_owned())
    }

    fn with(taker: &str, folder: TempDir, url: String) -> Result<Self> {
        fs::create_dir(folder.path().join("notes"))?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let locks = runtime.block_on(leasehold::open(&url))?;
        Ok(Self {
            taker: taker.into(),
            url,
            folder,
            runtime,
            locks,
            hands: Cell::new(0),
            notes: Cell::new(0),
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
    pub fn note(&self) -> PathBuf {
        self.notes.set(self.notes.get() + 1);
        self.folder.path().join(format!("notes/{}", self.notes.get()))
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
    pub fn start(&self, orders: Orders) -> Result<Process> {
        Process::start(&self.taker, self.here(orders))
    }

    /// As [`start`](Self::start), with the events read at the end only.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_quiet(&self, orders: Orders) -> Result<Process> {
        Process::start_quiet(&self.taker, self.here(orders), self.note())
    }

    fn here(&self, orders: Orders) -> Orders {
        let first_hand = self.hands.get();
        self.hands.set(first_hand + orders.hands);
        let store = if orders.store.is_empty() { self.url() } else { orders.store };
        Orders { store, first_hand, ..orders }
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
    pub fn look(&self, name: &str) -> Result<Line> {
        Ok(self.run(self.locks.look(name))?)
    }

    /// Waits until a hand is in the line and does not hold.
    ///
    /// # Errors
    /// If it is not seen.
    pub fn see_waiting(&self, name: &str, hand: u32) -> Result<Event> {
        let label = hand.to_string();
        until(&format!("hand {hand} to wait"), || {
            let line = self.look(name)?;
            Ok(line.waiters().any(|entry| entry.note.label == label).then_some(()))
        })?;
        Ok(Event { at: now(), hand, name: 0, what: What::Seen })
    }

    /// Nobody is in these lines.
    ///
    /// # Errors
    /// If somebody is, saying who.
    pub fn check_empty(&self, names: &[String]) -> Result<()> {
        for name in names {
            let line = self.look(name)?;
            ensure!(line.entries.is_empty(), "left in line: {line:?}");
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
        let strange = self.strange_files(names)?;
        ensure!(strange.is_empty(), "left in the folder: {strange:?}");
        // What was killed while joining has left an inbox that is swept when a minute old.
        until("the inboxes of the dead to be swept", || Ok((self.members()? <= 2).then_some(())))
    }

    /// Files in the folder that are not of these names.
    fn strange_files(&self, names: &[String]) -> Result<Vec<String>> {
        let mut strange = Vec::new();
        for entry in fs::read_dir(self.store())? {
            let file = entry?.file_name().into_string().ok().context("all names here are text")?;
            if file != ".members" && !is_of(&file, names) {
                strange.push(file);
            }
        }
        Ok(strange)
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
        return names.iter().any(|name| name.starts_with(&hostile::decoded(begin)));
    }
    let name = [".lock", ".line"].iter().find_map(|end| file.strip_suffix(end)).map(hostile::decoded);
    name.is_some_and(|name| names.contains(&name))
}

fn temporary() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("leasehold-lab-").tempdir()?)
}

fn count_fifos(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        ensure!(entry.file_type()?.is_fifo(), "{} is no inbox", entry.path().display());
        count += 1;
    }
    Ok(count)
}
