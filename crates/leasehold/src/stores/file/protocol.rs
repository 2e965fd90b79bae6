//! What is done at a line: entering, standing, leaving, looking. Each is one edit, under the line's lock.

use super::Shared;
use super::entry::StoredClaim;
use super::flock::{FlockGuard, FlockMode};
use super::process::{Peer, ProcessId};
use super::queue_file::Transaction;
use crate::{Claim, ClaimId, Entry, LockState, Name, OnContention, Result, Standing};

/// Where a claim stands that waits, and what it waits for.
pub(super) enum Situation {
    Decided(Standing),
    /// Behind others whose lives matter to it.
    Behind {
        ahead: u32,
        peers: Vec<Peer>,
    },
    /// First, but somebody who is not in the line has the file locked.
    BlockedExternally {
        ahead: u32,
    },
}

impl Shared {
    pub(super) fn enter(
        &self,
        transaction: &mut Transaction,
        claim: &Claim,
        on_contention: OnContention,
    ) -> Result<Standing> {
        if let Some(at) = transaction.position(claim.id) {
            self.give_back(transaction, at, claim)?;
            return Ok(transaction.standing(at));
        }
        self.check_kind(transaction, claim)?;
        if on_contention == OnContention::Fail && !transaction.has_room_for(claim.share) {
            self.remove_dead(transaction)?;
        }
        let flock = if transaction.has_room_for(claim.share) {
            self.flock_for(claim)?
        } else {
            None
        };
        match (flock, on_contention) {
            (Some(flock), _) => {
                let token = transaction.mint()?;
                transaction.append(claim, self.own_process(), Some(token))?;
                self.flocks.lock().insert(claim.id, flock);
                Ok(Standing::Held { token })
            }
            (None, OnContention::Queue) => {
                let at = transaction.append(claim, self.own_process(), None)?;
                Ok(transaction.standing(at))
            }
            (None, OnContention::Fail) => Ok(Standing::Gone),
        }
    }

    /// A claim that is in line already may keep a smaller share.
    fn give_back(&self, transaction: &mut Transaction, at: usize, claim: &Claim) -> Result<()> {
        let present = transaction.entries()[at].share();
        if present == claim.share {
            return Ok(());
        }
        claim.share.check_shrinks_from(present)?;
        if let Some(flock) = self.flocks.lock().get_mut(&claim.id) {
            flock.downgrade(&self.folder.lock_path(&claim.name))?;
        }
        transaction.set_share(at, claim.share)
    }

    /// One kind and size for a name, as long as anybody alive uses it.
    fn check_kind(&self, transaction: &mut Transaction, claim: &Claim) -> Result<()> {
        let fits = |transaction: &Transaction| {
            transaction
                .entries()
                .first()
                .map_or(Ok(()), |first| claim.share.check_same_kind(first.share()))
        };
        if fits(transaction).is_err() {
            self.remove_dead(transaction)?;
        }
        fits(transaction)
    }

    fn remove_dead(&self, transaction: &mut Transaction) -> Result<()> {
        let mut processes: Vec<ProcessId> = transaction
            .entries()
            .iter()
            .map(StoredClaim::process)
            .collect();
        processes.sort_unstable();
        processes.dedup();
        for process in processes {
            if self.peer(process)?.is_none() {
                transaction.remove_process(process)?;
            }
        }
        Ok(())
    }

    /// Another member, or `None` if it is dead; this process is alive, and nobody's peer.
    fn peer(&self, process: ProcessId) -> Result<Option<Liveness>> {
        if process == self.own_process() {
            return Ok(Some(Liveness::Own));
        }
        Ok(Peer::open(&self.folder.members(), process)?.map(Liveness::Other))
    }

    /// The lock file, locked, if nobody else has it.
    fn flock_for(&self, claim: &Claim) -> Result<Option<FlockGuard>> {
        let (at, mode) = (
            self.folder.lock_path(&claim.name),
            FlockMode::of(claim.share),
        );
        let kept = self.flocks.lock().remove(&claim.id);
        match kept {
            Some(flock) if flock.satisfies(mode) && flock.serves(&at)? => Ok(Some(flock)),
            _ => FlockGuard::acquire(&self.folder, &at, mode),
        }
    }

    /// Where a claim stands; grants it if its turn has come, and buries whoever stood dead in its way.
    pub(super) fn evaluate(
        &self,
        transaction: &mut Transaction,
        claim: &Claim,
    ) -> Result<Situation> {
        loop {
            let Some(at) = transaction.position(claim.id) else {
                return Ok(Situation::Decided(Standing::Gone));
            };
            if transaction.entries()[at].process() != self.own_process() {
                // It is of a member that this process no longer is, and others may bury it at any time.
                return Ok(Situation::Decided(Standing::Gone));
            }
            if transaction.entries()[at].token().is_some() {
                return Ok(Situation::Decided(transaction.standing(at)));
            }
            let ahead = u32::try_from(at).unwrap_or(u32::MAX);
            if at < transaction.admitted() {
                if !self.process.read().is_listed() {
                    // The folder was moved away, and others may hold in the one that has the path now.
                    return Ok(Situation::Decided(Standing::Gone));
                }
                let Some(flock) = self.flock_for(claim)? else {
                    return Ok(Situation::BlockedExternally { ahead });
                };
                let token = transaction.mint()?;
                transaction.grant(at, token)?;
                self.flocks.lock().insert(claim.id, flock);
                return Ok(Situation::Decided(Standing::Held { token }));
            }
            if let Some(peers) = self.check_liveness(transaction, at)? {
                return Ok(Situation::Behind { ahead, peers });
            }
        }
    }

    /// Those whose lives matter to the waiter at `at`; `None` after burying one that was dead.
    fn check_liveness(
        &self,
        transaction: &mut Transaction,
        at: usize,
    ) -> Result<Option<Vec<Peer>>> {
        let mut peers = Vec::new();
        for process in transaction.watched(at) {
            match self.peer(process)? {
                Some(Liveness::Other(peer)) => peers.push(peer),
                Some(Liveness::Own) => {}
                None => {
                    transaction.remove_process(process)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(peers))
    }

    pub(super) fn leave(&self, transaction: &mut Transaction, claim: &Claim) -> Result<bool> {
        // Unlocked first: the next in line is let in by the ticket, and then finds the file unlocked.
        self.flocks.lock().remove(&claim.id);
        let Some(at) = transaction.position(claim.id) else {
            // It was broken; whoever did that may have been killed before he rang the next.
            self.wake(transaction.to_wake());
            return Ok(false);
        };
        let process = transaction.entries()[at].process();
        transaction.remove(at)?;
        self.wake(vec![(process, claim.id)]);
        Ok(true)
    }

    /// Whether a claim of this process is in line; its files look used from then on.
    pub(super) fn renew(&self, transaction: &Transaction, id: ClaimId) -> bool {
        let is_there = self.is_present(transaction, id);
        if is_there {
            transaction.touch();
            if let Some(flock) = self.flocks.lock().get(&id) {
                flock.touch();
            }
        }
        is_there
    }

    /// Whether a claim of this process is in line. Rings it if its turn has come: whoever should have done so may have
    /// had no descriptor left to do it with.
    fn is_present(&self, transaction: &Transaction, id: ClaimId) -> bool {
        let Some(at) = transaction.position(id) else {
            return false;
        };
        let stored = &transaction.entries()[at];
        if stored.token().is_none() && at < transaction.admitted() {
            self.wake_peer(id);
        }
        stored.process() == self.own_process()
    }

    pub(super) fn queue_file(
        &self,
        transaction: &mut Transaction,
        name: Name,
    ) -> Result<LockState> {
        let mut entries = Vec::new();
        for (at, stored) in transaction.entries().iter().enumerate() {
            if self.peer(stored.process())?.is_some() {
                let (standing, info) = (transaction.standing(at), stored.info());
                entries.push(Entry {
                    id: stored.id(),
                    share: stored.share(),
                    standing,
                    info,
                });
            }
        }
        Ok(LockState {
            name,
            entries,
            last_token: transaction.last_token(),
            external_holders: Vec::new(),
            servers: Vec::new(),
        })
    }
}

enum Liveness {
    Own,
    Other(Peer),
}
