//! The queue file of a lock.
//!
//! The file has the [token counter](super::counter) and one [entry](super::entry) for each holder
//! and each waiter. It is changed under a short flock(2) on the file itself, and every change is
//! written at once. So a process that is killed leaves a sound queue.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::FlockOperation;

use super::counter::{
    Boot, COUNTER_LEN, CounterFile, CounterState, FIRST_RANGE, RANGE, TokenCounter,
};
use super::entry::{ENTRY_LEN, StoredClaim};
use super::folder::location::{Location, OpenFile};
use super::folder::object::touch;
use super::folder_counter::{MayWait, take_range};
use super::process::ProcessId;
use super::wakeups::{Position, to_wake, watches};
use crate::local_fs::{write_at, write_back};
use crate::{Claim, ClaimId, Error, Result, Share, Standing, Token, admitted};

/// How a queue file is locked before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locking {
    /// Without sleeping. An edit takes microseconds.
    Try,
    /// Sleeps until the file is locked.
    Wait,
    /// Not at all, for inspection. An edit may be under way.
    Not,
}

/// A queue file that was read, under its lock.
pub(super) struct QueueFile {
    /// `None` if the file is missing. Then the queue is empty, and it is not changed.
    file: Option<OpenFile>,
    at: Location,
    boot: Boot,
    counter: TokenCounter,
    /// Whether the counter must be written again before it is used.
    needs_rewrite: bool,
    /// Slots that power loss has torn. They are freed before anything is written.
    torn: Vec<usize>,
    /// The length of the file.
    len: u64,
    /// The claims in order of arrival.
    entries: Vec<StoredClaim>,
    before: Vec<Position>,
}

impl QueueFile {
    /// Locks and reads an open file.
    ///
    /// `None` if another process has had the file locked for longer than an edit takes, or if the
    /// file was deleted after it was opened and before it was locked.
    pub(super) fn read(
        file: OpenFile,
        at: Location,
        boot: Boot,
        locking: Locking,
    ) -> Result<Option<Self>> {
        if !lock(&file, &at, locking)? {
            return Ok(None);
        }
        let Some(status) = file.status_at(&at)? else {
            return Ok(None);
        };

        let len = u64::try_from(status.st_size).unwrap_or_default();
        let bytes = read_all(file.file(), len, &at)?;
        Self::parse(file, at, boot, &bytes).map(Some)
    }

    /// The empty queue of a missing file.
    pub(super) fn missing(at: Location, boot: Boot) -> Self {
        Self {
            file: None,
            at,
            boot,
            counter: TokenCounter::fresh(boot),
            needs_rewrite: false,
            torn: Vec::new(),
            len: 0,
            entries: Vec::new(),
            before: Vec::new(),
        }
    }

    fn parse(file: OpenFile, at: Location, boot: Boot, bytes: &[u8]) -> Result<Self> {
        let path = || at.path();
        let described = counter_file(&path);
        let state = TokenCounter::read(bytes);
        let is_current = matches!(state, CounterState::Intact(stored) if stored.boot == boot);
        let counter = described.counter(&state, boot)?;

        let (entries, torn) = read_entries(bytes.get(COUNTER_LEN..).unwrap_or_default());
        if let Some(slot) = torn.first()
            && counter.boot == boot
        {
            let message = format!("the entry in slot {slot} of {} is torn", path().display());
            return Err(Error::damaged(message).help(described.removal_help()));
        }

        Ok(Self {
            before: positions(&entries),
            needs_rewrite: !is_current,
            len: bytes.len() as u64,
            file: Some(file),
            at,
            boot,
            counter,
            torn,
            entries,
        })
    }

    pub(super) fn is_missing(&self) -> bool {
        self.file.is_none()
    }

    /// Whether the file exists and its queue is empty.
    pub(super) fn is_free(&self) -> bool {
        self.file.is_some() && self.entries.is_empty()
    }

    pub(super) fn entries(&self) -> &[StoredClaim] {
        &self.entries
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.entries.iter().position(|stored| stored.id() == id)
    }

    /// The processes that have claims in the queue.
    pub(super) fn processes(&self) -> Vec<ProcessId> {
        let mut processes: Vec<ProcessId> = self.entries.iter().map(StoredClaim::process).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Returns the number of claims, from the front of the queue, that can be held together.
    pub(super) fn admitted(&self) -> usize {
        admitted(self.entries.iter().map(StoredClaim::share))
    }

    /// Whether one more claim with this share would be granted at once.
    pub(super) fn has_room_for(&self, share: Share) -> bool {
        let shares = self.entries.iter().map(StoredClaim::share).chain([share]);
        admitted(shares) > self.entries.len()
    }

    pub(super) fn standing(&self, at: usize) -> Standing {
        match self.entries[at].token() {
            Some(token) => Standing::Held { token },
            None => Standing::Queued {
                ahead: u32::try_from(at).unwrap_or(u32::MAX),
            },
        }
    }

    /// The token of the last grant, if there was one.
    pub(super) fn last_token(&self) -> Option<Token> {
        Token::new(self.highest_token())
    }

    /// The processes that the waiter at this position must watch.
    pub(super) fn watched(&self, at: usize) -> Vec<ProcessId> {
        watches(&positions(&self.entries), at)
    }

    /// The waiters that may be granted now.
    pub(super) fn grantable(&self) -> Vec<(ProcessId, ClaimId)> {
        self.entries[..self.admitted()]
            .iter()
            .filter(|stored| stored.token().is_none())
            .map(|stored| (stored.process(), stored.id()))
            .collect()
    }

    /// A token that is not below any granted one, for the counter that outlives the file. It is
    /// zero if none was granted.
    pub(super) fn highest_token(&self) -> u64 {
        if self.counter.is_fresh() {
            return 0;
        }
        self.counter.last_token
    }

    /// Takes a range of tokens if the counter needs one and this is possible without waiting.
    /// Returns whether [`mint`](Self::mint) can run without waiting.
    pub(super) fn prepare_to_mint(&mut self) -> bool {
        if self.is_missing() || !self.needs_rewrite && !self.counter.is_spent() {
            return true;
        }

        // A step that mints reports an error. A release does not mint, and goes on.
        self.extend(1, MayWait::No).unwrap_or(false)
    }

    /// Mints the token of a grant, which is above the last one by one and the
    /// [reserved](Claim::reserved) tokens.
    pub(super) fn mint(&mut self, reserved: u32) -> Result<Token> {
        let len = self.prepare_range(reserved)?;
        let range = self
            .counter
            .take(len, open_file(self.file.as_ref()))
            .map_err(|error| self.write_error(error))?;
        Ok(Token::new(range.up_to).expect("counters begin above zero"))
    }

    /// Sees to it that the counter has room for a grant, and returns how many tokens it takes.
    fn prepare_range(&mut self, reserved: u32) -> Result<u64> {
        self.repair()?;
        let len = 1 + u64::from(reserved);
        if !self.counter.has_room_for(len) {
            self.extend(len, MayWait::Yes)?;
        }
        Ok(len)
    }

    /// Appends a waiting claim to the queue. Returns its position.
    pub(super) fn append(&mut self, claim: &Claim, process: ProcessId) -> Result<usize> {
        self.repair()?;
        let stored = self.next_entry(claim, process);
        self.write(&stored)?;
        self.push(&stored);
        Ok(self.entries.len() - 1)
    }

    /// Appends a holder to the queue, with the next token.
    ///
    /// The first slot is next to the counter, and one call writes both.
    pub(super) fn append_holder(&mut self, claim: &Claim, process: ProcessId) -> Result<Token> {
        let mut stored = self.next_entry(claim, process);
        if stored.slot > 0 {
            let token = self.mint(claim.reserved)?;
            stored.grant(token);
            self.write(&stored)?;
            self.push(&stored);
            return Ok(token);
        }

        let len = self.prepare_range(claim.reserved)?;
        let (counter, block) = self.counter.taken(len);
        let token = Token::new(counter.last_token).expect("counters begin above zero");
        stored.grant(token);
        let mut bytes = [0; COUNTER_LEN + ENTRY_LEN];
        bytes[..COUNTER_LEN].copy_from_slice(&block);
        bytes[COUNTER_LEN..].copy_from_slice(&stored.to_bytes());

        self.write_bytes(0, &bytes)?;
        self.counter = counter;
        self.push(&stored);
        Ok(token)
    }

    fn next_entry(&self, claim: &Claim, process: ProcessId) -> StoredClaim {
        let sequence = self.entries.last().map_or(0, StoredClaim::sequence) + 1;
        StoredClaim::new(claim, process, self.free_slot(), sequence)
    }

    fn push(&mut self, stored: &StoredClaim) {
        self.len = self.len.max(offset_of(stored.slot + 1));
        self.entries.push(*stored);
    }

    /// Changes the claim at this position.
    pub(super) fn change(
        &mut self,
        at: usize,
        change: impl FnOnce(&mut StoredClaim),
    ) -> Result<()> {
        let mut stored = self.entries[at];
        change(&mut stored);
        self.write(&stored)?;
        self.entries[at] = stored;
        Ok(())
    }

    pub(super) fn remove(&mut self, at: usize) -> Result<()> {
        self.free(self.entries[at].slot)?;
        self.entries.remove(at);
        Ok(())
    }

    /// Removes all claims of a dead process.
    pub(super) fn remove_process(&mut self, process: ProcessId) -> Result<()> {
        let is_of_process = |stored: &StoredClaim| stored.process() == process;
        while let Some(at) = self.entries.iter().position(is_of_process) {
            self.remove(at)?;
        }
        Ok(())
    }

    /// Keeps the times of the file recent, so that cleaners do not delete it.
    pub(super) fn touch(&self) {
        touch(open_file(self.file.as_ref()));
    }

    /// Whether the locked file is still at this place.
    pub(super) fn is_at(&self, at: &Location) -> Result<bool> {
        match &self.file {
            Some(file) => Ok(file.look_at(at)?.is_some()),
            None => Ok(false),
        }
    }

    /// Shortens the file of an empty queue. Its slots are free.
    pub(super) fn shorten_if_free(&self) {
        if self.is_free() && self.len > IDLE_LEN_MAX {
            // If this fails, the long file only uses disk space.
            let _ = open_file(self.file.as_ref()).set_len(COUNTER_LEN as u64);
        }
    }

    /// Unlocks the file. Returns it, and the claims to wake: they may be granted, or they must
    /// watch another process than before.
    pub(super) fn unlock(self) -> (Option<OpenFile>, Vec<(ProcessId, ClaimId)>) {
        if let Some(file) = &self.file {
            file.unlock();
        }
        let to_wake = to_wake(&self.before, &positions(&self.entries));
        (self.file, to_wake)
    }

    /// Takes a range for a counter that cannot be continued as it is.
    fn repair(&mut self) -> Result<()> {
        if self.needs_rewrite {
            self.extend(1, MayWait::Yes)?;
        }
        Ok(())
    }

    /// Takes a range of tokens from the folder's counter, above all tokens of this queue, and frees
    /// the torn slots. Returns `false` if this would have had to wait.
    fn extend(&mut self, len_min: u64, may_wait: MayWait) -> Result<bool> {
        let usual = if self.counter.is_fresh() {
            FIRST_RANGE
        } else {
            RANGE
        };
        let len = usual.max(len_min);
        let at_least = self.highest_token();
        let Some(range) = take_range(self.at.folder(), self.boot, at_least, len, may_wait)? else {
            return Ok(false);
        };

        for slot in std::mem::take(&mut self.torn) {
            self.free(slot)?;
        }
        self.counter
            .extend(&range, self.boot, open_file(self.file.as_ref()))
            .map_err(|error| self.write_error(error))?;
        self.needs_rewrite = false;
        Ok(true)
    }

    /// Frees a slot by writing zeros.
    fn free(&self, slot: usize) -> Result<()> {
        self.write_slot(slot, &[0; ENTRY_LEN])
    }

    fn free_slot(&self) -> usize {
        let mut used: Vec<usize> = self.entries.iter().map(|stored| stored.slot).collect();
        used.sort_unstable();
        used.iter()
            .enumerate()
            .find(|(at, slot)| at != *slot)
            .map_or(used.len(), |(at, _)| at)
    }

    fn write(&self, stored: &StoredClaim) -> Result<()> {
        self.write_slot(stored.slot, &stored.to_bytes())
    }

    fn write_slot(&self, slot: usize, bytes: &[u8; ENTRY_LEN]) -> Result<()> {
        self.write_bytes(offset_of(slot), bytes)
    }

    fn write_bytes(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let file = open_file(self.file.as_ref());
        write_at(file, bytes, at).map_err(|error| {
            // If this fails too, the entry stays torn, and the next error says so.
            let _ = self.undo_write(at + (bytes.len() - ENTRY_LEN) as u64);
            self.write_error(error)
        })
    }

    /// Removes a part of an entry: the disk was full, or the limit on the size of files was lowered
    /// in the last second.
    #[cold]
    fn undo_write(&self, at: u64) -> std::io::Result<()> {
        let file = open_file(self.file.as_ref());
        if file.metadata()?.len() > self.len {
            file.set_len(self.len)?;
        }
        if at >= self.len {
            return Ok(());
        }
        let mut entries = self.entries.iter();
        let former = entries.find(|stored| offset_of(stored.slot) == at);
        write_back(
            file,
            &former.map_or([0; ENTRY_LEN], |stored| stored.to_bytes()),
            at,
        )
    }

    #[cold]
    fn write_error(&self, error: std::io::Error) -> Error {
        self.at.io_error(error, "write")
    }
}

fn open_file(file: Option<&OpenFile>) -> &File {
    file.expect("a missing queue is not changed").file()
}

/// Locks the file, and returns whether it may be read.
fn lock(file: &OpenFile, at: &Location, locking: Locking) -> Result<bool> {
    match locking {
        Locking::Not => return Ok(true),
        Locking::Wait => return file.lock(FlockOperation::LockExclusive, at),
        Locking::Try => {}
    }
    for _ in 0..TRIES_MAX {
        if file.lock(FlockOperation::NonBlockingLockExclusive, at)? {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}

/// Reads the entries in use, in order of arrival, and the slots of entries that are torn or cut
/// off. The processes of torn entries are unknown.
///
/// An entry is written in one call, and what a failed call has appended is removed. So only power
/// loss can tear an entry, and then its process has ended too. Entries of another boot are read like all others, because some kinds of container have a
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

/// Reads the file. Of a long one that is not leasehold's, it reads only the counter.
fn read_all(file: &File, len: u64, at: &Location) -> Result<Vec<u8>> {
    let read = |len: u64| {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0)
            .map(|()| bytes)
            .map_err(|error| at.io_error(error, "read"))
    };
    if len <= IDLE_LEN_MAX {
        return read(len);
    }

    // A file of another program may be larger than the memory. Its first bytes show that it is not
    // leasehold's, unless they are zeros: the entries behind a fresh counter decide then.
    let head = read(COUNTER_LEN as u64)?;
    let may_be_ours = matches!(
        TokenCounter::read(&head),
        CounterState::Fresh | CounterState::Intact(_) | CounterState::OneBlockLost(_)
    );
    if !may_be_ours {
        return Ok(head);
    }
    if len > LEN_MAX {
        let path = || at.path();
        let message = format!("{} is longer than any queue", path().display());
        return Err(Error::damaged(message).help(counter_file(&path).removal_help()));
    }
    read(len)
}

fn counter_file(path: &dyn Fn() -> PathBuf) -> CounterFile<'_> {
    CounterFile {
        path,
        kind: "a queue file",
        used_for: "this lock",
    }
}

fn positions(entries: &[StoredClaim]) -> Vec<Position> {
    let position = |stored: &StoredClaim| Position {
        id: stored.id(),
        process: stored.process(),
        share: stored.share(),
        held: stored.token().is_some(),
    };
    entries.iter().map(position).collect()
}

fn offset_of(slot: usize) -> u64 {
    (COUNTER_LEN + slot * ENTRY_LEN) as u64
}

/// The longest file that is read: a queue of 262,000 claims. A sparse file of another user could be
/// larger than the memory.
const LEN_MAX: u64 = 64 * 1024 * 1024;

/// The length above which a file is truncated when its queue is empty.
const IDLE_LEN_MAX: u64 = 64 * 1024;

/// How often the lock is tried before a thread sleeps on it. An edit takes microseconds.
const TRIES_MAX: u32 = 20;
