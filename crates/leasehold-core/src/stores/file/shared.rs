//! The state that the claims of one open store share, and its registration as a process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::task::AbortHandle;

use super::counter::Boot;
use super::flock::FlockGuard;
use super::flock_waiters::FlockWaiters;
use super::folder::Folder;
use super::idle_names::IdleNames;
use super::kept_files::KeptFiles;
use super::process::{Inbox, Peer, Process, ProcessId, Wakeups};
use super::wakeups::Wakers;
use crate::runtime::background;
use crate::{ClaimId, Name, Result};

/// The state that the claims of one open store share.
#[derive(Debug)]
pub(super) struct Shared {
    folder: RwLock<Arc<Folder>>,
    pub(super) boot: Boot,
    /// How long a record is kept after its last use.
    pub(super) records_kept: Duration,
    pub(super) process: RwLock<Arc<Process>>,
    pub(super) wakers: Wakers,
    /// The lock files that claims of this process have locked, from just before the grant until
    /// they leave.
    pub(super) flocks: Mutex<HashMap<ClaimId, FlockGuard>>,
    pub(super) flock_waiters: FlockWaiters,
    name_locks: Mutex<HashMap<Name, Arc<AsyncMutex<()>>>>,
    pub(super) idle_names: IdleNames,
    pub(super) kept_queue_files: KeptFiles,
    pub(super) kept_lock_files: KeptFiles,
}

impl Shared {
    pub(super) fn new(
        folder: Arc<Folder>,
        boot: Boot,
        records_kept: Duration,
        process: Process,
    ) -> Self {
        Self {
            folder: RwLock::new(folder),
            boot,
            records_kept,
            process: RwLock::new(Arc::new(process)),
            wakers: Wakers::default(),
            flocks: Mutex::default(),
            flock_waiters: FlockWaiters::default(),
            name_locks: Mutex::default(),
            idle_names: IdleNames::default(),
            kept_queue_files: KeptFiles::default(),
            kept_lock_files: KeptFiles::default(),
        }
    }

    /// The folder as it was opened last.
    pub(super) fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder.read())
    }

    pub(super) fn own_process(&self) -> ProcessId {
        self.process.read().id()
    }

    /// Wakes claims of this process and of others.
    pub(super) fn wake(&self, concerned: Vec<(ProcessId, ClaimId)>) {
        let mut others: HashMap<ProcessId, Vec<ClaimId>> = HashMap::new();
        for (process, id) in concerned {
            if process == self.own_process() {
                self.wakers.wake(id);
            } else {
                others.entry(process).or_default().push(id);
            }
        }

        for (process, ids) in others {
            match Peer::open(&self.folder(), process) {
                Ok(Some(peer)) => peer.wake(&ids),
                // A process that watches the dead one removes its claims.
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "could not wake the next waiter"),
            }
        }
    }

    /// Waits until no other task of this process waits on a thread for the queue file of a name.
    pub(super) async fn lock_name(&self, name: &Name) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.name_locks.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(name.clone()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Wakes the claims that other processes name in the inbox.
pub(super) fn listen(shared: &Arc<Shared>, inbox: Inbox) -> AbortHandle {
    let weak = Arc::downgrade(shared);
    let inbox = Arc::new(inbox);
    background::spawn_restarting(move || forward_wakeups(weak.clone(), Arc::clone(&inbox)))
}

async fn forward_wakeups(weak: Weak<Shared>, inbox: Arc<Inbox>) {
    // A panic may have interrupted the wake-ups of an earlier read.
    let mut wakeups = Wakeups::Overflow;
    loop {
        let Some(shared) = weak.upgrade() else {
            return;
        };
        match wakeups {
            Wakeups::Claims(ids) => ids.iter().for_each(|id| shared.wakers.wake(*id)),
            Wakeups::Overflow => shared.wakers.wake_all(),
        }
        drop(shared);
        wakeups = inbox.read_wakeups().await;
    }
}

/// Joins again if another program deleted or replaced the FIFO of this process. All its claims are
/// lost.
pub(super) fn keep_listed(shared: &Arc<Shared>, listener: &Mutex<AbortHandle>) -> Result<()> {
    if shared.process.read().is_listed() {
        return Ok(());
    }
    // One thread joins for all threads. If each thread joined, a claim could enter under an id that
    // is then replaced, and would count as dead.
    let mut listener = listener.lock();
    if shared.process.read().is_listed() {
        return Ok(());
    }

    let folder = Arc::new(shared.folder().open_again()?);
    *shared.folder.write() = Arc::clone(&folder);
    let _entered = background::handle().enter();
    let (process, inbox) = Process::join(&folder)?;
    *shared.process.write() = Arc::new(process);
    std::mem::replace(&mut *listener, listen(shared, inbox)).abort();
    shared.wakers.wake_all();
    Ok(())
}
