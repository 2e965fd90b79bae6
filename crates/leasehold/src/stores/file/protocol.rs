//! The steps of the protocol: enter, poll, leave, renew, inspect.
//!
//! Each step is one [transaction](super::transaction). A process writes its own grants, because
//! only the granted process can take the flock(2) that belongs to the grant.

use super::Shared;
use super::entry::StoredClaim;
use super::flock::{FlockGuard, FlockMode};
use super::process::{Peer, ProcessId};
use super::transaction::Transaction;
use super::wakeups::wake;
use crate::{Claim, ClaimId, Entry, LockState, Name, OnContention, Result, Standing};

/// Puts a claim into the queue, unless it is already there. Grants it if it fits and the lock file
/// is free.
pub(super) fn enter(
    shared: &Shared,
    transaction: &mut Transaction,
    claim: &Claim,
    on_contention: OnContention,
) -> Result<Standing> {
    if let Some(at) = transaction.position(claim.id) {
        shrink_share(shared, transaction, at, claim)?;
        return Ok(transaction.standing(at));
    }

    check_kind(shared, transaction, claim)?;
    if on_contention == OnContention::Fail && !transaction.has_room_for(claim.share) {
        remove_dead(shared, transaction)?;
    }
    let flock = if transaction.has_room_for(claim.share) {
        flock_for(shared, claim)?
    } else {
        None
    };

    let process = shared.own_process();
    match (flock, on_contention) {
        (Some(flock), _) => {
            let token = transaction.mint(claim.reserved)?;
            transaction.append(claim, process, Some(token))?;
            shared.flocks.lock().insert(claim.id, flock);
            Ok(Standing::Held { token })
        }
        (None, OnContention::Queue) => {
            let at = transaction.append(claim, process, None)?;
            Ok(transaction.standing(at))
        }
        (None, OnContention::Fail) => Ok(Standing::Gone),
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

/// Returns the situation of a claim. Grants the claim if it fits, and removes dead processes ahead
/// of it.
pub(super) fn poll(
    shared: &Shared,
    transaction: &mut Transaction,
    claim: &Claim,
) -> Result<Situation> {
    loop {
        let Some(at) = transaction.position(claim.id) else {
            return Ok(Situation::Decided(Standing::Gone));
        };
        let stored = &transaction.entries()[at];
        if stored.process() != shared.own_process() {
            // This process has since joined again under a new id. Other processes may remove claims
            // of the old id.
            return Ok(Situation::Decided(Standing::Gone));
        }
        if stored.token().is_some() {
            return Ok(Situation::Decided(transaction.standing(at)));
        }

        if at < transaction.admitted() {
            return grant(shared, transaction, at, claim);
        }
        if let Some(peers) = watch_or_remove(shared, transaction, at)? {
            let ahead = u32::try_from(at).unwrap_or(u32::MAX);
            return Ok(Situation::Behind { ahead, peers });
        }
    }
}

/// Removes a claim and wakes the next ones. Returns whether the claim was in the queue.
pub(super) fn leave(shared: &Shared, transaction: &mut Transaction, claim: &Claim) -> Result<bool> {
    // The file is unlocked first: once the queue admits the next waiter, that waiter must find the
    // file unlocked.
    release_flock(shared, claim);

    let Some(at) = transaction.position(claim.id) else {
        // The hold was broken. The process that broke it may have been killed before it woke the
        // next waiters.
        wake(shared, transaction.grantable());
        return Ok(false);
    };
    let process = transaction.entries()[at].process();
    transaction.remove(at)?;
    wake(shared, vec![(process, claim.id)]);
    Ok(true)
}

/// Whether a claim of this process is in the queue. Keeps the times of its files recent.
pub(super) fn renew(shared: &Shared, transaction: &Transaction, id: ClaimId) -> bool {
    let is_present = is_present(shared, transaction, id);
    if is_present {
        transaction.touch();
        if let Some(flock) = shared.flocks.lock().get(&id) {
            flock.touch();
        }
    }
    is_present
}

/// The state of the lock. Claims of dead processes are left out.
pub(super) fn inspect(shared: &Shared, transaction: &Transaction, name: Name) -> Result<LockState> {
    let mut entries = Vec::new();
    for (at, stored) in transaction.entries().iter().enumerate() {
        if !is_dead(shared, stored.process())? {
            entries.push(Entry {
                lease_left: None,
                id: stored.id(),
                share: stored.share(),
                standing: transaction.standing(at),
                reserved: stored.reserved(),
                info: stored.info(),
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

/// Returns the other living processes in the queue, for an observer that watches them.
pub(super) fn live_processes(shared: &Shared, transaction: &Transaction) -> Result<Vec<Peer>> {
    let mut processes: Vec<ProcessId> = transaction
        .entries()
        .iter()
        .map(StoredClaim::process)
        .collect();
    processes.sort_unstable();
    processes.dedup();

    let mut peers = Vec::new();
    for process in processes {
        if let Some(LiveProcess::Other(peer)) = find_process(shared, process)? {
            peers.push(peer);
        }
    }
    Ok(peers)
}

/// Reduces the share of a claim in the queue.
fn shrink_share(
    shared: &Shared,
    transaction: &mut Transaction,
    at: usize,
    claim: &Claim,
) -> Result<()> {
    let present = transaction.entries()[at].share();
    if present == claim.share {
        return Ok(());
    }

    claim.share.check_shrinks_from(present)?;
    if let Some(flock) = shared.flocks.lock().get_mut(&claim.id) {
        flock.downgrade(&shared.folder.lock_path(&claim.name))?;
    }
    transaction.set_share(at, claim.share)
}

/// Checks that a claim has the same kind and capacity as the other claims of living processes.
fn check_kind(shared: &Shared, transaction: &mut Transaction, claim: &Claim) -> Result<()> {
    let check = |transaction: &Transaction| match transaction.entries().first() {
        Some(first) => claim.share.check_same_kind(first.share()),
        None => Ok(()),
    };

    if check(transaction).is_err() {
        remove_dead(shared, transaction)?;
    }
    check(transaction)
}

pub(super) fn remove_dead(shared: &Shared, transaction: &mut Transaction) -> Result<()> {
    let mut processes: Vec<ProcessId> = transaction
        .entries()
        .iter()
        .map(StoredClaim::process)
        .collect();
    processes.sort_unstable();
    processes.dedup();

    for process in processes {
        if is_dead(shared, process)? {
            transaction.remove_process(process)?;
        }
    }
    Ok(())
}

/// Whether a process has ended. A process whose FIFO may not be opened counts as alive.
fn is_dead(shared: &Shared, process: ProcessId) -> Result<bool> {
    match find_process(shared, process) {
        Err(error) if error.is_denied() || error.is_damaged() => Ok(false),
        found => Ok(found?.is_none()),
    }
}

/// Grants a waiter that fits, unless a process outside the queue has the lock file locked.
fn grant(
    shared: &Shared,
    transaction: &mut Transaction,
    at: usize,
    claim: &Claim,
) -> Result<Situation> {
    if !shared.process.read().is_listed() {
        // The folder was moved away. Another claim may be held in the folder that has the path now.
        return Ok(Situation::Decided(Standing::Gone));
    }
    let Some(flock) = flock_for(shared, claim)? else {
        let ahead = u32::try_from(at).unwrap_or(u32::MAX);
        return Ok(Situation::BlockedExternally { ahead });
    };

    let token = transaction.mint(claim.reserved)?;
    transaction.grant(at, token)?;
    shared.flocks.lock().insert(claim.id, flock);
    Ok(Situation::Decided(Standing::Held { token }))
}

/// Returns the processes that the waiter at this position must watch.
///
/// If one of them is dead, removes its claims and returns `None`.
fn watch_or_remove(
    shared: &Shared,
    transaction: &mut Transaction,
    at: usize,
) -> Result<Option<Vec<Peer>>> {
    let mut peers = Vec::new();
    for process in transaction.watched(at) {
        match find_process(shared, process)? {
            Some(LiveProcess::Other(peer)) => peers.push(peer),
            Some(LiveProcess::Own) => {}
            None => {
                transaction.remove_process(process)?;
                return Ok(None);
            }
        }
    }
    Ok(Some(peers))
}

/// The lock file, locked; `None` if a process outside the queue has it locked.
fn flock_for(shared: &Shared, claim: &Claim) -> Result<Option<FlockGuard>> {
    let at = shared.folder.lock_path(&claim.name);
    let mode = FlockMode::of(claim.share);

    let kept = shared.flocks.lock().remove(&claim.id);
    match kept {
        Some(flock) if flock.satisfies(mode) && flock.serves(&at)? => Ok(Some(flock)),
        _ => FlockGuard::acquire(&shared.folder, &shared.kept_lock_files, &claim.name, mode),
    }
}

/// Unlocks the lock file of a claim, if the claim has locked it.
pub(super) fn release_flock(shared: &Shared, claim: &Claim) {
    let flock = shared.flocks.lock().remove(&claim.id);
    if let Some(flock) = flock {
        flock.release(&shared.kept_lock_files, &claim.name);
    }
}

/// Whether a claim of this process is in the queue.
///
/// Wakes the claim if it may be granted: the process that should have done so may have run out of
/// descriptors.
fn is_present(shared: &Shared, transaction: &Transaction, id: ClaimId) -> bool {
    let Some(at) = transaction.position(id) else {
        return false;
    };
    let stored = &transaction.entries()[at];
    if stored.token().is_none() && at < transaction.admitted() {
        shared.wakers.wake(id);
    }
    stored.process() == shared.own_process()
}

/// A living process.
enum LiveProcess {
    Own,
    Other(Peer),
}

/// Finds a process of the store; `None` if it is dead.
fn find_process(shared: &Shared, process: ProcessId) -> Result<Option<LiveProcess>> {
    if process == shared.own_process() {
        return Ok(Some(LiveProcess::Own));
    }
    let peer = Peer::open(&shared.folder.members(), process)?;
    Ok(peer.map(LiveProcess::Other))
}
