//! The state that the claims of one open store share, and its registration as a process.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::task::AbortHandle;

use super::counter::Boot;
use super::flock::{FlockGuard, FlockWaiters};
use super::folder::Folder;
use super::housekeeping::IdleNames;
use super::kept_files::KeptFiles;
use super::process::{Inbox, Process, ProcessId, Wakeups};
use super::transact::NameLocks;
use super::wakeups::Wakers;
use crate::runtime::background;
use crate::{ClaimId, Result};

/// The state that the claims of one open store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: Arc<Folder>,
    pub(super) boot: Boot,
    pub(super) process: RwLock<Arc<Process>>,
    pub(super) wakers: Wakers,
    /// The lock files that claims of this process have locked, from just before the grant until
    /// they leave.
    pub(super) flocks: Mutex<HashMap<ClaimId, FlockGuard>>,
    pub(super) flock_waiters: FlockWaiters,
    pub(super) transaction_locks: NameLocks,
    pub(super) idle_names: IdleNames,
    pub(super) kept_queue_files: KeptFiles,
    pub(super) kept_lock_files: KeptFiles,
}

impl Shared {
    pub(super) fn new(folder: Folder, boot: Boot, process: Process) -> Self {
        Self {
            folder: Arc::new(folder),
            boot,
            process: RwLock::new(Arc::new(process)),
            wakers: Wakers::default(),
            flocks: Mutex::default(),
            flock_waiters: FlockWaiters::default(),
            transaction_locks: NameLocks::default(),
            idle_names: IdleNames::default(),
            kept_queue_files: KeptFiles::default(),
            kept_lock_files: KeptFiles::default(),
        }
    }

    pub(super) fn own_process(&self) -> ProcessId {
        self.process.read().id()
    }
}

/// Wakes the claims that other processes name in the inbox.
pub(super) fn listen(shared: &Arc<Shared>, inbox: Inbox) -> AbortHandle {
    let shared = Arc::downgrade(shared);
    let task = async move {
        loop {
            let wakeups = inbox.read_wakeups().await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            match wakeups {
                Wakeups::Claims(ids) => ids.iter().for_each(|id| shared.wakers.wake(*id)),
                Wakeups::Overflow => shared.wakers.wake_all(),
            }
        }
    };
    background::handle().spawn(task).abort_handle()
}

/// Joins again if another program deleted the FIFO of this process. To the other processes, all
/// its claims are gone.
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

    shared.folder.open_again()?;
    let _entered = background::handle().enter();
    let (process, inbox) = Process::join(&shared.folder)?;
    *shared.process.write() = Arc::new(process);
    std::mem::replace(&mut *listener, listen(shared, inbox)).abort();
    shared.wakers.wake_all();
    Ok(())
}
