//! A transaction: the change of one queue file, under its lock.
//!
//! [`transact`](super::transact::transact) begins it, and a step of the
//! [protocol](super::protocol) makes the changes.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use super::Shared;
use super::counter::{Boot, COUNTER_LEN, FIRST_RANGE, RANGE, TokenCounter};
use super::entry::{ENTRY_LEN, StoredClaim};
use super::folder::location::Location;
use super::folder::{Folder, touch};
use super::folder_counter::{MayWait, take_range};
use super::kept_files::OpenFile;
use super::process::ProcessId;
use super::queue_file::{Content, IDLE_LEN_MAX};
use super::wakeups::{Position, to_wake, watches};
use crate::local_fs::io_error;
use crate::{Claim, ClaimId, Error, Result, Share, Standing, Token, admitted};

/// A queue that is being changed. Every change is written at once, so a process that is killed
/// leaves a sound queue.
pub(super) struct Transaction {
    file: OpenFile,
    at: Location,
    folder: Arc<Folder>,
    boot: Boot,
    counter: TokenCounter,
    needs_rewrite: bool,
    /// Slots that power loss has torn. They are freed before anything is written.
    torn: Vec<usize>,
    len: u64,
    /// The claims in order of arrival.
    entries: Vec<StoredClaim>,
    before: Vec<Position>,
}

impl Transaction {
    pub(super) fn begin(shared: &Shared, file: OpenFile, at: Location, content: Content) -> Self {
        let before = positions(&content.entries);
        Self {
            file,
            at,
            folder: Arc::clone(&shared.folder),
            boot: shared.boot,
            counter: content.counter,
            needs_rewrite: content.needs_rewrite,
            torn: content.torn,
            len: content.len,
            entries: content.entries,
            before,
        }
    }

    pub(super) fn entries(&self) -> &[StoredClaim] {
        &self.entries
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.entries.iter().position(|stored| stored.id() == id)
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
        Token::new(self.counter.last_token()).filter(|_| !self.counter.is_fresh())
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

    /// A token that is not below any granted one, for the counter that outlives the file.
    pub(super) fn highest_token(&self) -> u64 {
        if self.counter.is_fresh() {
            return 0;
        }
        self.counter.last_token()
    }

    /// Takes a range of tokens if the counter needs one and this is possible without waiting.
    /// Returns whether [`mint`](Self::mint) can run without waiting.
    pub(super) fn prepare_to_mint(&mut self) -> bool {
        if !self.needs_rewrite && !self.counter.is_spent() {
            return true;
        }

        // A step that mints reports an error. A release does not mint, and goes on.
        self.extend(1, MayWait::No).unwrap_or(false)
    }

    /// Mints the token of a grant, which is above the last one by one and the
    /// [reserved](Claim::reserved) tokens.
    pub(super) fn mint(&mut self, reserved: u32) -> Result<Token> {
        self.repair()?;
        let len = 1 + u64::from(reserved);
        if !self.counter.has_room_for(len) {
            self.extend(len, MayWait::Yes)?;
        }

        let token = self
            .counter
            .mint(len, self.file.file())
            .map_err(|error| self.write_error(error))?;
        Ok(Token::new(token).expect("counters begin above zero"))
    }

    /// Appends a claim to the queue, as a holder if it has a token. Returns its position.
    pub(super) fn append(
        &mut self,
        claim: &Claim,
        process: ProcessId,
        token: Option<Token>,
    ) -> Result<usize> {
        self.repair()?;
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
        touch(self.file.file());
    }

    /// Unlocks the file. Returns it, and the claims to wake: they may be granted, or they must
    /// watch another process than before.
    pub(super) fn unlock(self) -> (OpenFile, Vec<(ProcessId, ClaimId)>) {
        if self.entries.is_empty() && self.len > IDLE_LEN_MAX {
            // The slots are free. If truncation fails, the long file only uses disk space.
            let _ = self.file.file().set_len(COUNTER_LEN as u64);
        }
        // Closing alone would not unlock: a child that was forked meanwhile has the file open too.
        // Unlocking fails only on an invalid descriptor, and this one is open.
        let _ = flock(self.file.file(), FlockOperation::Unlock);

        let to_wake = to_wake(&self.before, &positions(&self.entries));
        (self.file, to_wake)
    }

    /// Unlocks and closes the file. Returns the claims to wake.
    pub(super) fn close(self) -> Vec<(ProcessId, ClaimId)> {
        self.unlock().1
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
        let len = if self.counter.is_fresh() {
            FIRST_RANGE
        } else {
            RANGE
        };
        let len = len.max(len_min);
        let at_least = self.highest_token();
        let Some(range) = take_range(&self.folder, self.boot, at_least, len, may_wait)? else {
            return Ok(false);
        };

        for slot in std::mem::take(&mut self.torn) {
            self.free(slot)?;
        }
        self.counter
            .extend(&range, self.boot, self.file.file())
            .map_err(|error| self.write_error(error))?;
        self.needs_rewrite = false;
        Ok(true)
    }

    /// Frees a slot by writing zeros: a slot with the sequence number zero is free.
    fn free(&self, slot: usize) -> Result<()> {
        self.file
            .file()
            .write_all_at(&[0; ENTRY_LEN], offset_of(slot))
            .map_err(|error| self.write_error(error))
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
        self.file
            .file()
            .write_all_at(&stored.to_bytes(), offset_of(stored.slot))
            .map_err(|error| self.write_error(error))
    }

    /// Whether the locked file is still at this place.
    pub(super) fn is_at(&self, at: &Location) -> Result<bool> {
        Ok(self.file.status_at(at)?.is_some())
    }

    #[cold]
    fn write_error(&self, error: std::io::Error) -> Error {
        io_error(error, "write", &self.at.path())
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
