//! Runs transactions.
//!
//! [`transact`] opens, locks and reads the file, runs one step of the [protocol](super::protocol),
//! and wakes the claims that the change concerns. It stays on the caller's thread if that takes
//! microseconds. Otherwise it moves to a blocking thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::sleep;

use super::queue_file::{Missing, QueueFile, TryLock};
use super::transaction::Transaction;
use super::wakeups::wake;
use super::{Shared, housekeeping};
use crate::runtime::background;
use crate::{Error, Name, Result};

/// Runs `work` on a queue under its lock, then wakes the claims that the change concerns.
///
/// Returns `Ok(None)` if the queue file is missing and must not be made.
pub(super) async fn transact<T, W>(
    shared: &Arc<Shared>,
    name: &Name,
    missing: Missing,
    work: W,
) -> Result<Option<T>>
where
    T: Send + 'static,
    W: FnOnce(&Shared, &mut Transaction) -> Result<T> + Send + 'static,
{
    let Some(file) = QueueFile::open_or_reuse(shared, name, missing)? else {
        return Ok(None);
    };
    let TryLock::Locked(locked) = file.try_lock()? else {
        return transact_on_thread(shared, name, missing, work).await;
    };
    let Some(mut transaction) = locked.read(shared)? else {
        return transact_on_thread(shared, name, missing, work).await;
    };

    if transaction.prepare_to_mint() {
        return commit(shared, name, transaction, work).map(Some);
    }
    let shared = Arc::clone(shared);
    let name = name.clone();
    let commit = move || commit(&shared, &name, transaction, work);
    on_blocking_thread(commit).await.map(Some)
}

/// Reads a queue, for inspection; `Ok(None)` if the queue file is missing.
///
/// It does not wait. If another process keeps a queue locked for longer than a transaction takes,
/// the queue is read without the lock. So a process that is stopped, or belongs to another user,
/// cannot block an inspection.
pub(super) fn view<T>(
    shared: &Arc<Shared>,
    name: &Name,
    read: impl Fn(&Shared, &Transaction) -> Result<T>,
) -> Result<Option<T>> {
    let mut failed = None;
    for _ in 0..VIEWS_MAX {
        let at = shared.folder.queue_path(name);
        let Some(file) = QueueFile::open(&shared.folder, at, Missing::Keep)? else {
            return Ok(None);
        };

        let transaction = match file.try_lock()? {
            TryLock::Locked(locked) => locked.read(shared)?,
            TryLock::Busy(file) => match file.read_unlocked(shared) {
                // A write may be under way.
                Err(error) if error.is_damaged() => {
                    failed = Some(error);
                    continue;
                }
                transaction => transaction?,
            },
        };
        if let Some(transaction) = transaction {
            let reply = read(shared, &transaction);
            transaction.close();
            return reply.map(Some);
        }
    }
    Err(failed.unwrap_or_else(|| {
        Error::unavailable("other processes replaced the queue file at each attempt to read it")
    }))
}

/// Reads a queue as [`view`] does, between two transactions if the present one ends soon.
///
/// In the middle of a transaction, the lock file may be locked for a grant that has no entry yet.
pub(super) async fn view_settled<T>(
    shared: &Arc<Shared>,
    name: &Name,
    read: impl Fn(&Shared, &Transaction) -> Result<T>,
) -> Result<Option<T>> {
    for _ in 0..SETTLE_TRIES {
        let at = shared.folder.queue_path(name);
        let Some(file) = QueueFile::open(&shared.folder, at, Missing::Keep)? else {
            return Ok(None);
        };
        if let TryLock::Locked(locked) = file.try_lock()?
            && let Some(transaction) = locked.read(shared)?
        {
            let reply = read(shared, &transaction);
            transaction.close();
            return reply.map(Some);
        }
        sleep(SETTLE_PAUSE).await;
    }
    view(shared, name, read)
}

/// Waits on a thread until the queue file can be locked.
///
/// One thread per name and process waits, however many callers there are. A process that is stopped
/// in the middle of a transaction must not use up all threads.
async fn transact_on_thread<T, W>(
    shared: &Arc<Shared>,
    name: &Name,
    missing: Missing,
    work: W,
) -> Result<Option<T>>
where
    T: Send + 'static,
    W: FnOnce(&Shared, &mut Transaction) -> Result<T> + Send + 'static,
{
    let shared = Arc::clone(shared);
    let at = shared.folder.queue_path(name);
    let name = name.clone();
    let name_lock = shared.transaction_locks.lock(&name).lock_owned().await;

    let wait_and_work = move || {
        let _name_lock = name_lock;
        loop {
            let Some(file) = QueueFile::open(&shared.folder, at.clone(), missing)? else {
                return Ok(None);
            };
            if let Some(transaction) = file.lock()?.read(&shared)? {
                return commit(&shared, &name, transaction, work).map(Some);
            }
        }
    };
    on_blocking_thread(wait_and_work).await
}

fn commit<T>(
    shared: &Arc<Shared>,
    name: &Name,
    mut transaction: Transaction,
    work: impl FnOnce(&Shared, &mut Transaction) -> Result<T>,
) -> Result<T> {
    let reply = work(shared, &mut transaction);
    let is_idle = transaction.entries().is_empty();
    let (file, to_wake) = transaction.unlock();
    shared.kept_queue_files.keep(name, file);
    wake(shared, to_wake);

    if is_idle {
        housekeeping::note(shared, name);
    }
    reply
}

/// Runs work on a blocking thread, because it may wait. The work runs to its end even if its caller
/// is dropped.
pub(super) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match background::handle().spawn_blocking(work).await {
        Ok(reply) => reply,
        Err(failed) => {
            let message = format!("a thread of the file store failed: {failed}");
            Err(Error::unavailable(message))
        }
    }
}

/// How often an inspection finds a transaction under way before it reads without the lock. A
/// transaction takes microseconds, unless its process is stopped.
const SETTLE_TRIES: u32 = 20;
const SETTLE_PAUSE: Duration = Duration::from_millis(1);
/// How many times a queue is read again if another process changes it meanwhile.
const VIEWS_MAX: usize = 100;

/// One lock per name, for the tasks of this process that wait for the name's queue file.
#[derive(Debug, Default)]
pub(super) struct NameLocks(Mutex<HashMap<Name, Arc<AsyncMutex<()>>>>);

impl NameLocks {
    fn lock(&self, name: &Name) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(name.clone()).or_default())
    }
}
