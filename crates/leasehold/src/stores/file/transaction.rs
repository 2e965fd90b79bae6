//! How a line is edited: in place if that takes microseconds, else on a thread that may wait.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::Shared;
use super::queue_file::{LockedQueueFile, Missing, QueueFile, Transaction};
use crate::runtime::background;
use crate::{Error, Name, Result};

impl Shared {
    /// Does `work` on a line under its lock, then wakes whom it concerns. `Ok(None)` if there is no line file and none
    /// is to be made.
    ///
    /// Work that need not wait, for another's edit or for the disk, is done in place; else on a thread that may wait.
    pub(super) async fn transact<T, W>(
        self: &Arc<Self>,
        name: &Name,
        missing: Missing,
        work: W,
    ) -> Result<Option<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Shared, &mut Transaction) -> Result<T> + Send + 'static,
    {
        let at = self.folder.queue_path(name);
        if missing == Missing::Make {
            at.make_parent()?;
        }
        let Some(queue) = QueueFile::open(&self.folder, at, missing)? else {
            return Ok(None);
        };
        match queue.try_lock()? {
            Ok(locked) => match locked.read(self.boot)? {
                Some(transaction) if !transaction.needs_sync() => {
                    self.commit(transaction, work).map(Some)
                }
                Some(transaction) => {
                    let shared = Arc::clone(self);
                    on_blocking_thread(move || shared.commit(transaction, work))
                        .await
                        .map(Some)
                }
                None => self.transact_on_thread(name, missing, work).await,
            },
            Err(_busy) => self.transact_on_thread(name, missing, work).await,
        }
    }

    /// One thread per name and process waits for another's edit, however often it is asked: whoever is stopped in the
    /// middle of one must not use up all threads.
    async fn transact_on_thread<T, W>(
        self: &Arc<Self>,
        name: &Name,
        missing: Missing,
        work: W,
    ) -> Result<Option<T>>
    where
        T: Send + 'static,
        W: FnOnce(&Shared, &mut Transaction) -> Result<T> + Send + 'static,
    {
        let (shared, at) = (Arc::clone(self), self.folder.queue_path(name));
        let locked = self.transaction_locks.lock(name).lock_owned().await;
        let wait_and_work = move || {
            let _locked = locked;
            loop {
                let Some(queue) = QueueFile::open(&shared.folder, at.clone(), missing)? else {
                    return Ok(None);
                };
                if let Some(transaction) = queue
                    .lock()
                    .and_then(|locked: LockedQueueFile| locked.read(shared.boot))?
                {
                    return shared.commit(transaction, work).map(Some);
                }
            }
        };
        on_blocking_thread(wait_and_work).await
    }

    fn commit<T>(
        &self,
        mut transaction: Transaction,
        work: impl FnOnce(&Self, &mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let reply = work(self, &mut transaction);
        self.wake(transaction.close());
        reply
    }
}

/// Whose turn it is to wait for the line file of a name.
#[derive(Debug, Default)]
pub(super) struct NameLocks(Mutex<HashMap<Name, Arc<AsyncMutex<()>>>>);

impl NameLocks {
    fn lock(&self, name: &Name) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock();
        locks.retain(|_, mode| Arc::strong_count(mode) > 1);
        Arc::clone(locks.entry(name.clone()).or_default())
    }
}

/// Runs what may wait on a thread that may. It runs to its end even if nobody listens any more.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = background::handle().spawn_blocking(work).await;
    done.unwrap_or_else(|failed| {
        Err(Error::unavailable(format!(
            "a thread of the file store failed: {failed}"
        )))
    })
}
