//! A line file: who holds one lock and who waits for it, edited under a short lock on the file itself.

use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::counter::{Boot, COUNTER_LEN, CounterState, TokenCounter};
use super::entry::{ENTRY_LEN, StoredClaim};
use super::flock::is_at;
use super::folder::Folder;
use super::folder::directory::Location;
use super::process::ProcessId;
use super::touch::touch;
use super::wakeups::{Position, to_wake, watches};
use crate::local_fs::io_error;
use crate::{Claim, ClaimId, Error, Result, Share, Standing, Token, admitted};

/// A longer file is cut when its line is empty.
const IDLE_LEN_MAX: u64 = 64 * 1024;
/// How often the file's lock is tried before a thread is sent to sleep on it: editing takes microseconds.
const TRIES_MAX: u32 = 20;

/// An open line file, not yet locked.
#[derive(Debug)]
pub(super) struct QueueFile {
    file: File,
    at: Location,
}

/// Whether a missing file is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Keep,
}

impl QueueFile {
    /// `None` if there is no such file and none is to be made.
    pub(super) fn open(folder: &Folder, at: Location, missing: Missing) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        let opened = match missing {
            Missing::Make => folder.open_or_make_file(&at, flags),
            Missing::Keep => at.open(flags),
        };
        match opened {
            Ok(file) => Ok(Some(Self {
                file: File::from(file),
                at,
            })),
            Err(Errno::NOENT) if missing == Missing::Keep => Ok(None),
            Err(error) => Err(io_error(error, "open the line file", &at.path())),
        }
    }

    /// Locks without sleeping; gives the file back if somebody edits it for longer than editing takes.
    pub(super) fn try_lock(self) -> Result<Result<LockedQueueFile, Self>> {
        for _ in 0..TRIES_MAX {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Ok(LockedQueueFile(self))),
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_error(error, "lock the line file", &self.at.path())),
            }
        }
        Ok(Err(self))
    }

    /// Locks, sleeping until it can.
    pub(super) fn lock(self) -> Result<LockedQueueFile> {
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(LockedQueueFile(self)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io_error(error, "lock the line file", &self.at.path())),
            }
        }
    }
}

/// A line file under its lock.
#[derive(Debug)]
pub(super) struct LockedQueueFile(QueueFile);

impl LockedQueueFile {
    /// Reads the line. `None` if the file was deleted between opening and locking it: open it again.
    pub(super) fn read(self, boot: Boot) -> Result<Option<Transaction>> {
        let QueueFile { file, at } = self.0;
        let what = file
            .metadata()
            .map_err(|error| io_error(error, "look at", &at.path()))?;
        if !is_at(&what, &at)? {
            return Ok(None);
        }
        let bytes = read_all(&file, &what, &at)?;
        let Opened {
            counter,
            needs_rewrite,
            booted,
        } = open_counter(&bytes, boot, &at)?;
        let slots = bytes.get(COUNTER_LEN..).unwrap_or_default();
        let (entries, torn) = read_entries(slots);
        if let Some(torn) = torn.first().filter(|_| !booted) {
            let path = at.path();
            return Err(Error::damaged(format!(
                "the ticket in slot {torn} of {} is torn",
                path.display()
            ))
            .help(help(&path)));
        }
        let len = bytes.len() as u64;
        let mut transaction = Transaction {
            file,
            at,
            counter,
            needs_rewrite,
            boot,
            torn,
            len,
            entries,
            before: Vec::new(),
        };
        transaction.before = transaction.positions();
        Ok(Some(transaction))
    }
}

/// The counter, and what became of it.
struct Opened {
    counter: TokenCounter,
    /// It must be written anew before it is used.
    needs_rewrite: bool,
    /// It is of another boot: power may have been lost, and tickets torn.
    booted: bool,
}

fn open_counter(bytes: &[u8], boot: Boot, at: &Location) -> Result<Opened> {
    let opened = |counter: TokenCounter, needs_rewrite| {
        Ok(Opened {
            booted: counter.boot() != boot,
            counter,
            needs_rewrite,
        })
    };
    match TokenCounter::read(bytes) {
        CounterState::Fresh => opened(TokenCounter::fresh(boot), true),
        CounterState::Intact(counter) if counter.boot() == boot => opened(counter, false),
        CounterState::Intact(counter) | CounterState::OneBlockLost(counter) => {
            opened(counter.restarted(), true)
        }
        CounterState::Newer(version) => {
            let path = at.path();
            let what = format!(
                "{} is of version {version} of the format, newer than this program",
                path.display()
            );
            Err(Error::unsupported(what).help("use the newer leasehold everywhere on this machine"))
        }
        CounterState::Corrupt => {
            let path = at.path();
            Err(
                Error::damaged(format!("the counter in {} is torn", path.display()))
                    .help(help(&path)),
            )
        }
        CounterState::Foreign => Err(Error::damaged(format!(
            "{} is not a queue file of leasehold",
            at.path().display()
        ))
        .help("move it away, or choose another folder")),
    }
}

fn help(path: &Path) -> String {
    format!(
        "stop everybody who uses this lock, then remove {}: tokens go on from the clock",
        path.display()
    )
}

fn read_all(file: &File, what: &Metadata, at: &Location) -> Result<Vec<u8>> {
    if !what.is_file() {
        return Err(
            Error::damaged(format!("{} is not a regular file", at.path().display()))
                .help("remove it"),
        );
    }
    let read = |len: u64| {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)
            .map(|()| bytes)
            .map_err(|error| io_error(error, "read", &at.path()))
    };
    if what.len() > IDLE_LEN_MAX {
        // Another's file may be larger than the memory: no more is read of it than shows whose it is.
        let head = read(COUNTER_LEN as u64)?;
        if !matches!(
            TokenCounter::read(&head),
            CounterState::Intact(_) | CounterState::OneBlockLost(_)
        ) {
            return Ok(head);
        }
    }
    read(what.len())
}

/// The tickets in use, and the slots of those that are torn or cut off: whose they were is not known.
///
/// Tickets are written whole, so it takes the loss of power to tear one, and then its owner is gone as well. The tickets of
/// another boot are read like all others: their members tell best who is dead, as some kinds of container have a boot id
/// of their own.
fn read_entries(slots: &[u8]) -> (Vec<StoredClaim>, Vec<usize>) {
    let (mut entries, mut torn) = (Vec::new(), Vec::new());
    for (slot, bytes) in slots.chunks(ENTRY_LEN).enumerate() {
        match StoredClaim::read(bytes, slot) {
            Ok(stored) => entries.extend(stored),
            Err(_) => torn.push(slot),
        }
    }
    entries.sort_unstable_by_key(StoredClaim::sequence);
    (entries, torn)
}

/// A line being edited. Every change is written at once, so that a process that is killed leaves a sound line.
pub(super) struct Transaction {
    file: File,
    at: Location,
    counter: TokenCounter,
    needs_rewrite: bool,
    boot: Boot,
    /// Slots that the loss of power has torn, to be freed before anything is written.
    torn: Vec<usize>,
    len: u64,
    /// In order of arrival.
    entries: Vec<StoredClaim>,
    before: Vec<Position>,
}

impl Transaction {
    pub(super) fn entries(&self) -> &[StoredClaim] {
        &self.entries
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.entries.iter().position(|stored| stored.id() == id)
    }

    /// How many from the front fit.
    pub(super) fn admitted(&self) -> usize {
        admitted(self.entries.iter().map(StoredClaim::share))
    }

    /// Whether one more with this share would be granted at once.
    pub(super) fn has_room_for(&self, share: Share) -> bool {
        admitted(self.entries.iter().map(StoredClaim::share).chain([share])) > self.entries.len()
    }

    pub(super) fn standing(&self, at: usize) -> Standing {
        match self.entries[at].token() {
            Some(token) => Standing::Held { token },
            None => Standing::Queued {
                ahead: u32::try_from(at).unwrap_or(u32::MAX),
            },
        }
    }

    /// The token given last, if any was.
    pub(super) fn last_token(&self) -> Option<Token> {
        Token::new(self.counter.last_token()).filter(|_| !self.counter.is_fresh())
    }

    /// Whether [`mint`](Self::mint) would have to wait for the disk.
    pub(super) fn needs_sync(&self) -> bool {
        self.needs_rewrite || self.counter.is_spent()
    }

    /// The next token.
    pub(super) fn mint(&mut self) -> Result<Token> {
        self.finish()?;
        if self.counter.is_spent() {
            self.reserve()?;
        }
        let token = self
            .counter
            .mint(&self.file)
            .map_err(|error| io_error(error, "write", &self.at.path()))?;
        Ok(Token::new(token).expect("counters begin above zero"))
    }

    /// Puts a claim at the end, granted already if it has a token; the position it got.
    pub(super) fn append(
        &mut self,
        claim: &Claim,
        process: ProcessId,
        token: Option<Token>,
    ) -> Result<usize> {
        self.finish()?;
        let sequence = self.entries.last().map_or(0, StoredClaim::sequence) + 1;
        let mut stored = StoredClaim::new(claim, process, self.free_slot(), sequence);
        if let Some(token) = token {
            stored.grant(token);
        }
        self.write(&stored)?;
        self.len = self.len.max(offset_of(stored.slot + 1));
        self.entries.push(stored);
        Ok(self.entries.len() - 1)
    }

    pub(super) fn grant(&mut self, at: usize, token: Token) -> Result<()> {
        self.change(at, |stored| stored.grant(token))
    }

    pub(super) fn set_share(&mut self, at: usize, share: Share) -> Result<()> {
        self.change(at, |stored| stored.set_share(share))
    }

    pub(super) fn remove(&mut self, at: usize) -> Result<()> {
        self.free(self.entries[at].slot)?;
        self.entries.remove(at);
        Ok(())
    }

    /// Removes all tickets of a member that is dead.
    pub(super) fn remove_process(&mut self, process: ProcessId) -> Result<()> {
        while let Some(at) = self
            .entries
            .iter()
            .position(|stored| stored.process() == process)
        {
            self.remove(at)?;
        }
        Ok(())
    }

    /// Whose life matters to a waiter: the one who waits ahead of him; for the first who waits, all who hold.
    pub(super) fn watched(&self, at: usize) -> Vec<ProcessId> {
        watches(&self.positions(), at)
    }

    /// Those whose turn it is.
    pub(super) fn to_wake(&self) -> Vec<(ProcessId, ClaimId)> {
        let due = self.entries[..self.admitted()]
            .iter()
            .filter(|stored| stored.token().is_none());
        due.map(|stored| (stored.process(), stored.id())).collect()
    }

    /// Keeps the file from looking abandoned.
    pub(super) fn touch(&self) {
        touch(&self.file);
    }

    /// Unlocks; whom to wake, as their claim may be granted or they must watch somebody else than before.
    pub(super) fn close(self) -> Vec<(ProcessId, ClaimId)> {
        if self.entries.is_empty() && self.len > IDLE_LEN_MAX {
            // The slots are free; a file that stays long costs room and nothing else.
            let _ = self.file.set_len(COUNTER_LEN as u64);
        }
        // Said aloud, as a child that was forked meanwhile has the file open too. Closing does the rest.
        let _ = flock(&self.file, FlockOperation::Unlock);
        to_wake(&self.before, &self.positions())
    }

    /// Writes a counter anew that cannot be gone on with as it is.
    fn finish(&mut self) -> Result<()> {
        if self.needs_rewrite {
            for slot in std::mem::take(&mut self.torn) {
                self.free(slot)?;
            }
            self.sync_folder()?;
            self.counter.move_to(self.boot);
            self.reserve()?;
            self.needs_rewrite = false;
        }
        Ok(())
    }

    fn reserve(&mut self) -> Result<()> {
        self.counter
            .reserve(&self.file)
            .map_err(|error| io_error(error, "write", &self.at.path()))
    }

    /// So that the file itself is still there after power loss.
    fn sync_folder(&self) -> Result<()> {
        self.at
            .sync_parent()
            .map_err(|error| io_error(error, "sync the folder of", &self.at.path()))
    }

    /// A place of zero is a free slot.
    fn free(&self, slot: usize) -> Result<()> {
        let freed = self.file.write_all_at(&[0; ENTRY_LEN], offset_of(slot));
        freed.map_err(|error| io_error(error, "write", &self.at.path()))
    }

    fn free_slot(&self) -> usize {
        let mut used: Vec<usize> = self.entries.iter().map(|stored| stored.slot).collect();
        used.sort_unstable();
        used.iter()
            .enumerate()
            .find(|(at, slot)| at != *slot)
            .map_or(used.len(), |(at, _)| at)
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut StoredClaim)) -> Result<()> {
        let mut stored = self.entries[at];
        change(&mut stored);
        self.write(&stored)?;
        self.entries[at] = stored;
        Ok(())
    }

    fn write(&self, stored: &StoredClaim) -> Result<()> {
        let written = self
            .file
            .write_all_at(&stored.to_bytes(), offset_of(stored.slot));
        written.map_err(|error| io_error(error, "write", &self.at.path()))
    }

    fn positions(&self) -> Vec<Position> {
        let position = |stored: &StoredClaim| Position {
            id: stored.id(),
            process: stored.process(),
            share: stored.share(),
            held: stored.token().is_some(),
        };
        self.entries.iter().map(position).collect()
    }
}

fn offset_of(slot: usize) -> u64 {
    (COUNTER_LEN + slot * ENTRY_LEN) as u64
}
