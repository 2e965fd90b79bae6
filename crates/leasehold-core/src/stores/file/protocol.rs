//! The steps of the protocol: enter, poll, leave, renew, inspect.
//!
//! Each step is one [transaction](Transaction). A process writes its own grants, because only the
//! granted process can take the flock(2) that belongs to the grant.

use std::sync::Arc;

use rustix::fs::OFlags;

use super::flock::{FlockGuard, FlockMode};
use super::folder::location::{Location, OpenFile};
use super::lock_file;
use super::process::{Peer, ProcessId};
use super::queue_file::{Locking, QueueFile};
use super::record_file;
use super::shared::Shared;
use crate::store::{check_same_kind, check_shrinks, replies};
use crate::{Claim, Completion, Entry, LockState, Name, OnContention, Refused, Result, Standing};

/// One change of a queue, under its lock.
pub(super) struct Transaction {
    shared: Arc<Shared>,
    pub(super) queue: QueueFile,
}

/// What happens if the queue file is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is made.
    Make,
    /// The queue counts as empty. It cannot be changed.
    Keep,
}

impl Transaction {
    /// Opens, locks and reads the queue of a name. A kept file is not opened again.
    ///
    /// `None` if another process has had the file locked for longer than a transaction takes, or if
    /// the file was deleted after it was opened and before it was locked.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        name: &Name,
        missing: Missing,
        locking: Locking,
        kept: Option<OpenFile>,
    ) -> Result<Option<Self>> {
        let at = Location::queue(&shared.folder(), name);
        let opened = match missing {
            _ if kept.is_some() => kept,
            Missing::Make => Some(at.open_or_make(OFlags::RDWR, b"", OPEN)?),
            Missing::Keep => at.open_file(OFlags::RDWR, OPEN)?,
        };

        let queue = match opened {
            Some(file) => QueueFile::read(file, at, shared.boot, locking)?,
            None => Some(QueueFile::missing(at, shared.boot)),
        };
        let shared = Arc::clone(shared);
        Ok(queue.map(|queue| Self { shared, queue }))
    }

    /// Puts a claim into the queue, unless it is already there. Grants it if it fits and the lock
    /// file is free.
    pub(super) fn enter(&mut self, claim: &Claim, on_contention: OnContention) -> Result<Standing> {
        if let Some(at) = self.queue.position(claim.id) {
            if self.queue.entries()[at].process() != self.shared.own_process() {
                // This process has since joined again under a new id. Other processes may remove
                // claims of the old id.
                self.leave(claim)?;
                return Ok(Standing::Gone);
            }
            self.shrink_share(at, claim)?;
            return Ok(self.queue.standing(at));
        }

        self.check_kind(claim)?;
        if on_contention == OnContention::Fail && !self.queue.has_room_for(claim.share) {
            self.remove_dead()?;
        }
        let flock = if self.queue.has_room_for(claim.share) {
            flock_for(&self.shared, claim)?
        } else {
            None
        };

        let process = self.shared.own_process();
        match (flock, on_contention) {
            (Some(flock), _) => {
                let token = self.queue.append_holder(claim, process)?;
                self.shared.flocks.lock().insert(claim.id, flock);
                Ok(Standing::Held { token })
            }
            (None, OnContention::Queue) => {
                let at = self.queue.append(claim, process)?;
                Ok(self.queue.standing(at))
            }
            (None, OnContention::Fail) => Ok(Standing::Gone),
        }
    }

    /// Returns the situation of a claim. Grants the claim if it fits, and removes dead processes
    /// ahead of it.
    pub(super) fn poll(&mut self, claim: &Claim) -> Result<Situation> {
        loop {
            let Some(at) = self.queue.position(claim.id) else {
                return Ok(Situation::Decided(Standing::Gone));
            };
            let stored = &self.queue.entries()[at];
            if stored.process() != self.shared.own_process() {
                // This process has since joined again under a new id. Other processes may remove
                // claims of the old id.
                return Ok(Situation::Decided(Standing::Gone));
            }
            if stored.token().is_some() {
                return Ok(Situation::Decided(self.queue.standing(at)));
            }

            if at < self.queue.admitted() {
                return self.grant(at, claim);
            }
            if let Some(peers) = self.watch_or_remove(at)? {
                let ahead = u32::try_from(at).unwrap_or(u32::MAX);
                return Ok(Situation::Behind { ahead, peers });
            }
        }
    }

    /// Removes a claim and wakes the next ones. Returns whether the claim was in the queue.
    pub(super) fn leave(&mut self, claim: &Claim) -> Result<bool> {
        // The file is unlocked first: once the queue admits the next waiter, that waiter must find
        // the file unlocked. The queue is locked meanwhile, so the order matters only if this
        // process is killed between the two steps. An entry without a lock is harmless: another
        // process removes it when it finds this one dead. But a child may have inherited the file
        // and keep it locked. Without an entry, the next waiter would take that child for a holder
        // outside the queue, and wait until it ends.
        release_flock(&self.shared, claim);

        let Some(at) = self.queue.position(claim.id) else {
            // The hold was broken. The process that broke it may have been killed before it woke
            // the next waiters.
            self.shared.wake(self.queue.grantable());
            return Ok(false);
        };
        let process = self.queue.entries()[at].process();
        self.queue.remove(at)?;
        self.shared.wake(vec![(process, claim.id)]);
        Ok(true)
    }

    /// Records what a claim has completed, and then removes the claim. Returns whether it is recorded,
    /// by this call or an earlier one.
    pub(super) fn complete(&mut self, claim: &Claim, completion: &Completion) -> Result<bool> {
        let record = Location::record(&self.shared.folder(), &claim.name);
        let position = self.queue.position(claim.id);
        let own = self.shared.own_process();
        let is_held = position.is_some_and(|at| {
            let stored = &self.queue.entries()[at];
            stored.token().is_some() && stored.process() == own
        });
        if !is_held {
            return Ok(record_file::read(&record)?.is_of(claim.id));
        }

        // The record is on the disk before the entry goes, so that the next holder finds it.
        record_file::add(&record, completion)?;
        self.leave(claim)?;
        Ok(true)
    }

    /// Whether a claim of this process is in the queue. Keeps the times of its files recent.
    ///
    /// Wakes the claim if it may be granted: the process that should have done so may have run out
    /// of descriptors.
    pub(super) fn renew(&self, claim: &Claim) -> bool {
        let Some(at) = self.queue.position(claim.id) else {
            return false;
        };
        let stored = &self.queue.entries()[at];
        if stored.token().is_none() && at < self.queue.admitted() {
            self.shared.wakers.wake(claim.id);
        }
        if stored.process() != self.shared.own_process() {
            return false;
        }

        self.queue.touch();
        if let Some(flock) = self.shared.flocks.lock().get(&claim.id) {
            flock.touch();
        }
        true
    }

    /// The state of the lock. Claims of dead processes are left out.
    ///
    /// The second part is the process of each entry.
    pub(super) fn inspect(&self, name: &Name) -> Result<(LockState, Vec<ProcessId>)> {
        let mut lock_state = replies::lock_state(name.clone());
        let mut processes = Vec::new();
        lock_state.last_token = self.queue.last_token();

        for (at, stored) in self.queue.entries().iter().enumerate() {
            if !self.is_dead(stored.process())? {
                lock_state.entries.push(self.entry(at));
                processes.push(stored.process());
            }
        }
        Ok((lock_state, processes))
    }

    /// Returns why a claim was refused.
    pub(super) fn refusal(&self, name: &Name) -> Result<Refused> {
        let (mut lock_state, _) = self.inspect(name)?;
        if lock_state.holders().next().is_none() {
            let lock_path = Location::lock(&self.shared.folder(), name);
            lock_state.external_holders = lock_file::holders_of_locked(&lock_path);
        }
        Ok(replies::refused(lock_state, None))
    }

    fn entry(&self, at: usize) -> Entry {
        let stored = &self.queue.entries()[at];
        let standing = self.queue.standing(at);
        let mut entry = replies::entry(stored.id(), stored.share(), standing, stored.info());
        entry.reserved = stored.reserved();
        entry
    }

    /// Returns the other living processes in the queue, for an observer that watches them.
    pub(super) fn live_processes(&self) -> Result<Vec<Peer>> {
        let mut peers = Vec::new();
        for process in self.queue.processes() {
            if let Some(LiveProcess::Other(peer)) = self.find_process(process)? {
                peers.push(peer);
            }
        }
        Ok(peers)
    }

    pub(super) fn remove_dead(&mut self) -> Result<()> {
        for process in self.queue.processes() {
            if self.is_dead(process)? {
                self.queue.remove_process(process)?;
            }
        }
        Ok(())
    }

    /// Reduces the share of a claim in the queue.
    fn shrink_share(&mut self, at: usize, claim: &Claim) -> Result<()> {
        let present = self.queue.entries()[at].share();
        if present == claim.share {
            return Ok(());
        }

        check_shrinks(claim.share, present)?;
        if let Some(flock) = self.shared.flocks.lock().get_mut(&claim.id) {
            flock.downgrade(&Location::lock(&self.shared.folder(), &claim.name))?;
        }
        self.queue
            .change(at, |stored| stored.set_share(claim.share))
    }

    /// Checks that a claim has the same kind and capacity as the other claims of living processes.
    fn check_kind(&mut self, claim: &Claim) -> Result<()> {
        let check = |queue: &QueueFile| match queue.entries().first() {
            Some(first) => check_same_kind(claim.share, first.share()),
            None => Ok(()),
        };

        if check(&self.queue).is_err() {
            self.remove_dead()?;
        }
        check(&self.queue)
    }

    /// Grants a waiter that fits, unless a process outside the queue has the lock file locked.
    ///
    /// A hold is an entry with a token, and a locked lock file. The file is locked first, without
    /// waiting, while the queue is locked. If the process is killed in between, the kernel unlocks
    /// the file, and the entry is still that of a waiter. In the other order, an entry could say
    /// that a claim holds while flock(1) locks the file. [`leave`](Self::leave) unlocks the file
    /// before it removes the entry, so that a waiter whom the queue admits is never refused by the
    /// holder before it. What it finds locked is a file of flock(1), or of a broken hold that has
    /// not ended yet.
    fn grant(&mut self, at: usize, claim: &Claim) -> Result<Situation> {
        if !self.shared.process.read().is_listed() {
            // The folder was moved away. Another claim may be held in the folder that has the path
            // now.
            return Ok(Situation::Decided(Standing::Gone));
        }
        let Some(flock) = flock_for(&self.shared, claim)? else {
            let ahead = u32::try_from(at).unwrap_or(u32::MAX);
            return Ok(Situation::BlockedExternally { ahead });
        };

        let token = self.queue.mint(claim.reserved)?;
        self.queue.change(at, |stored| stored.grant(token))?;
        self.shared.flocks.lock().insert(claim.id, flock);
        Ok(Situation::Decided(Standing::Held { token }))
    }

    /// Returns the processes that the waiter at this position must watch.
    ///
    /// If one of them is dead, removes its claims and returns `None`.
    fn watch_or_remove(&mut self, at: usize) -> Result<Option<Vec<Peer>>> {
        let mut peers = Vec::new();
        for process in self.queue.watched(at) {
            match self.find_process(process)? {
                Some(LiveProcess::Other(peer)) => peers.push(peer),
                Some(LiveProcess::Own) => {}
                None => {
                    self.queue.remove_process(process)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(peers))
    }

    /// Whether a process has ended. A process whose FIFO may not be opened counts as alive.
    fn is_dead(&self, process: ProcessId) -> Result<bool> {
        match self.find_process(process) {
            Err(error) if error.is_denied() || error.is_damaged() => Ok(false),
            found => Ok(found?.is_none()),
        }
    }

    /// Finds a process of the store; `None` if it is dead.
    fn find_process(&self, process: ProcessId) -> Result<Option<LiveProcess>> {
        if process == self.shared.own_process() {
            return Ok(Some(LiveProcess::Own));
        }
        let peer = Peer::open(&self.shared.folder(), process)?;
        Ok(peer.map(LiveProcess::Other))
    }
}

/// The standing of a claim, and the event that a waiter waits for.
pub(super) enum Situation {
    Decided(Standing),
    /// The waiter is behind other claims and watches their processes.
    Behind {
        ahead: u32,
        peers: Vec<Peer>,
    },
    /// The waiter may be granted, but a process outside the queue has the lock file locked.
    BlockedExternally {
        ahead: u32,
    },
}

/// A living process.
enum LiveProcess {
    Own,
    Other(Peer),
}

/// The lock file, locked; `None` if a process outside the queue has it locked.
fn flock_for(shared: &Shared, claim: &Claim) -> Result<Option<FlockGuard>> {
    let at = Location::lock(&shared.folder(), &claim.name);
    let mode = FlockMode::of(claim.share);

    let kept = shared.flocks.lock().remove(&claim.id);
    match kept {
        Some(flock) if flock.satisfies(mode) && flock.serves(&at)? => Ok(Some(flock)),
        _ => FlockGuard::acquire(&shared.kept_lock_files, &claim.name, &at, mode),
    }
}

/// Unlocks the lock file of a claim, if the claim has locked it.
pub(super) fn release_flock(shared: &Shared, claim: &Claim) {
    let flock = shared.flocks.lock().remove(&claim.id);
    if let Some(flock) = flock {
        flock.release(&shared.kept_lock_files, &claim.name);
    }
}

/// What errors say if the queue file cannot be opened.
const OPEN: &str = "open the queue file";
