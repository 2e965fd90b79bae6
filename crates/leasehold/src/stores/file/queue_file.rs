//! The queue file of a lock: opened, locked and read.
//!
//! The file has the [token counter](super::counter) and one [entry](super::entry) for each holder
//! and each waiter. It is changed in a [transaction](super::transaction), under a short flock(2) on
//! the file itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FileType, FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::counter::{Boot, COUNTER_LEN, CounterState, TokenCounter};
use super::entry::{ENTRY_LEN, StoredClaim};
use super::folder::location::Location;
use super::folder::object::OpenError;
use super::folder::{Folder, open_error};
use super::kept_files::OpenFile;
use super::shared::Shared;
use super::transaction::Transaction;
use crate::local_fs::io_error;
use crate::{Error, Name, Result};

/// An open queue file that is not locked yet.
#[derive(Debug)]
pub(super) struct QueueFile {
    file: OpenFile,
    at: Location,
}

/// Whether a missing file is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Keep,
}

/// The outcome of an attempt to lock a queue file without waiting.
pub(super) enum TryLock {
    Locked(LockedQueueFile),
    /// Another process has had the file locked for longer than a transaction takes.
    Busy(QueueFile),
}

impl QueueFile {
    /// Opens the file. Returns `None` if it is missing and must not be made.
    pub(super) fn open(folder: &Folder, at: Location, missing: Missing) -> Result<Option<Self>> {
        let action = "open the queue file";
        let file = match missing {
            Missing::Make => folder.open_or_make_file(&at, OFlags::RDWR, b"", action)?,
            Missing::Keep => match at.open(FileType::RegularFile, OFlags::RDWR) {
                Ok(file) => file,
                Err(OpenError::Kernel(Errno::NOENT)) => return Ok(None),
                Err(error) => return Err(open_error(error, action, &at)),
            },
        };

        let file = OpenFile::inspect(File::from(file), &at)?;
        Ok(Some(Self { file, at }))
    }

    /// Opens the file, unless this process has kept it open.
    pub(super) fn open_or_reuse(
        shared: &Shared,
        name: &Name,
        missing: Missing,
    ) -> Result<Option<Self>> {
        let at = shared.folder.queue_path(name);
        match shared.kept_queue_files.take(name) {
            Some(file) => Ok(Some(Self { file, at })),
            None => Self::open(&shared.folder, at, missing),
        }
    }

    /// Locks the file without sleeping.
    pub(super) fn try_lock(self) -> Result<TryLock> {
        for _ in 0..TRIES_MAX {
            match flock(self.file.file(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(TryLock::Locked(LockedQueueFile(self))),
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_error(error, "lock the queue file", &self.at.path())),
            }
        }
        Ok(TryLock::Busy(self))
    }

    /// Reads the file without its lock, for inspection. A transaction may be under way in it.
    pub(super) fn read_unlocked(self, shared: &Shared) -> Result<Option<Transaction>> {
        LockedQueueFile(self).read(shared)
    }

    /// Locks the file, and sleeps until that succeeds.
    pub(super) fn lock(self) -> Result<LockedQueueFile> {
        loop {
            match flock(self.file.file(), FlockOperation::LockExclusive) {
                Ok(()) => return Ok(LockedQueueFile(self)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_error(error, "lock the queue file", &self.at.path())),
            }
        }
    }
}

/// A queue file under its lock.
#[derive(Debug)]
pub(super) struct LockedQueueFile(QueueFile);

impl LockedQueueFile {
    /// Reads the file and begins a transaction.
    ///
    /// `None` if the file was deleted after it was opened and before it was locked. The caller
    /// opens it again.
    pub(super) fn read(self, shared: &Shared) -> Result<Option<Transaction>> {
        let QueueFile { file, at } = self.0;
        let Some(status) = file.status_at(&at)? else {
            return Ok(None);
        };

        let len = u64::try_from(status.st_size).unwrap_or_default();
        let bytes = read_all(file.file(), len, &at)?;
        let content = parse(&bytes, shared.boot, &at)?;
        Ok(Some(Transaction::begin(shared, file, at, content)))
    }
}

/// The content of a queue file.
pub(super) struct Content {
    pub(super) counter: TokenCounter,
    /// Whether the counter must be written again before it is used.
    pub(super) needs_rewrite: bool,
    /// The claims in order of arrival.
    pub(super) entries: Vec<StoredClaim>,
    /// The slots of torn entries.
    pub(super) torn: Vec<usize>,
    /// The length of the file.
    pub(super) len: u64,
}

fn parse(bytes: &[u8], boot: Boot, at: &Location) -> Result<Content> {
    let stored = read_counter(bytes, boot, at)?;
    let is_of_this_boot = stored.counter.boot() == boot;

    let slots = bytes.get(COUNTER_LEN..).unwrap_or_default();
    let (entries, torn) = read_entries(slots);
    if let Some(slot) = torn.first()
        && is_of_this_boot
    {
        let path = at.path();
        let message = format!("the entry in slot {slot} of {} is torn", path.display());
        return Err(Error::damaged(message).help(removal_help(&path)));
    }

    Ok(Content {
        counter: stored.counter,
        needs_rewrite: stored.needs_rewrite,
        entries,
        torn,
        len: bytes.len() as u64,
    })
}

struct StoredCounter {
    counter: TokenCounter,
    needs_rewrite: bool,
}

fn read_counter(bytes: &[u8], boot: Boot, at: &Location) -> Result<StoredCounter> {
    let stored = |counter, needs_rewrite| {
        Ok(StoredCounter {
            counter,
            needs_rewrite,
        })
    };
    let path = at.path();
    let shown = path.display();

    match TokenCounter::read(bytes) {
        CounterState::Fresh => stored(TokenCounter::fresh(boot), true),
        CounterState::Intact(counter) if counter.boot() == boot => stored(counter, false),
        CounterState::Intact(counter) | CounterState::OneBlockLost(counter) => {
            stored(counter.restarted(), true)
        }
        CounterState::Newer(version) => {
            let message =
                format!("{shown} has version {version} of the format, newer than this program");
            Err(Error::unsupported(message)
                .help("use the newer leasehold everywhere on this machine"))
        }
        CounterState::Corrupt => {
            let message = format!("the counter in {shown} is torn");
            Err(Error::damaged(message).help(removal_help(&path)))
        }
        CounterState::Foreign => {
            let message = format!("{shown} is not a queue file of leasehold");
            Err(Error::damaged(message).help("move it away, or choose another folder"))
        }
    }
}

/// Reads the entries in use, in order of arrival, and the slots of entries that are torn or cut
/// off. The processes of torn entries are unknown.
///
/// An entry is written in one call, so only power loss can tear it, and then its process has ended
/// too. Entries of another boot are read like all others, because some kinds of container have a
/// boot id of their own. An entry is dead if its process is dead.
pub(super) fn read_entries(slots: &[u8]) -> (Vec<StoredClaim>, Vec<usize>) {
    let mut entries = Vec::new();
    let mut torn = Vec::new();
    for (slot, bytes) in slots.chunks(ENTRY_LEN).enumerate() {
        match StoredClaim::read(bytes, slot) {
            Ok(stored) => entries.extend(stored),
            Err(_) => torn.push(slot),
        }
    }

    entries.sort_unstable_by_key(StoredClaim::sequence);
    (entries, torn)
}

fn read_all(file: &File, len: u64, at: &Location) -> Result<Vec<u8>> {
    let read = |len: u64| {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)
            .map(|()| bytes)
            .map_err(|error| io_error(error, "read", &at.path()))
    };

    if len > IDLE_LEN_MAX {
        // A file of another program may be larger than the memory. Its first bytes show that it is
        // not leasehold's.
        let head = read(COUNTER_LEN as u64)?;
        let is_ours = matches!(
            TokenCounter::read(&head),
            CounterState::Intact(_) | CounterState::OneBlockLost(_)
        );
        if !is_ours {
            return Ok(head);
        }
        if len > LEN_MAX {
            let message = format!("{} is longer than any queue", at.path().display());
            return Err(Error::damaged(message).help(removal_help(&at.path())));
        }
    }
    read(len)
}

fn removal_help(path: &Path) -> String {
    let path = path.display();
    format!("stop every user of this lock, then remove {path}: tokens continue from the clock")
}

/// The longest file that is read: a queue of 262,000 claims. A sparse file of another user could be
/// larger than the memory.
const LEN_MAX: u64 = 64 * 1024 * 1024;

/// The length above which a file is truncated when its queue is empty.
pub(super) const IDLE_LEN_MAX: u64 = 64 * 1024;

/// How often the lock is tried before a thread sleeps on it. An edit takes microseconds.
const TRIES_MAX: u32 = 20;
