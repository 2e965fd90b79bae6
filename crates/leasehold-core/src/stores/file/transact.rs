//! Runs the steps of the [protocol](super::protocol), and wakes the claims that a change concerns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::housekeeping;
use super::protocol::{Missing, Transaction};
use super::queue_file::Locking;
use super::shared::Shared;
use crate::runtime::background::run_blocking;
use crate::{Claim, Error, Name, Result};

/// Runs a step on the queue of a claim under its lock, then wakes the claims that the change
/// concerns.
///
/// It stays on the caller's thread if that takes microseconds. Otherwise it moves to a blocking
/// thread.
pub(super) async fn transact<T: Send + 'static>(
    shared: &Arc<Shared>,
    claim: &Claim,
    missing: Missing,
    step: impl FnOnce(&mut Transaction, &Claim) -> Result<T> + Send + 'static,
) -> Result<T> {
    let kept = shared.kept_queue_files.take(&claim.name);
    let mut begun = Transaction::begin(shared, &claim.name, missing, Locking::Try, kept)?;
    let is_ready = begun
        .as_mut()
        .is_some_and(|transaction| transaction.queue.prepare_to_mint());
    if is_ready && let Some(transaction) = begun {
        return commit(shared, transaction, claim, step);
    }

    transact_on_thread(shared, claim, missing, begun, step).await
}

/// Runs a step as [`transact`] does, on a blocking thread: the step syncs a file.
pub(super) async fn transact_durably<T: Send + 'static>(
    shared: &Arc<Shared>,
    claim: &Claim,
    step: impl FnOnce(&mut Transaction, &Claim) -> Result<T> + Send + 'static,
) -> Result<T> {
    transact_on_thread(shared, claim, Missing::Keep, None, step).await
}

async fn transact_on_thread<T: Send + 'static>(
    shared: &Arc<Shared>,
    claim: &Claim,
    missing: Missing,
    mut begun: Option<Transaction>,
    step: impl FnOnce(&mut Transaction, &Claim) -> Result<T> + Send + 'static,
) -> Result<T> {
    // One thread per name and process waits, however many callers there are. A process that is
    // stopped in the middle of a transaction must not use up all threads.
    let name_lock = match begun {
        Some(_) => None,
        None => Some(shared.lock_name(&claim.name).await),
    };
    let shared = Arc::clone(shared);
    let claim = claim.clone();
    on_blocking_thread(move || {
        let _name_lock = name_lock;
        loop {
            if let Some(transaction) = begun {
                return commit(&shared, transaction, &claim, step);
            }
            let kept = shared.kept_queue_files.take(&claim.name);
            begun = Transaction::begin(&shared, &claim.name, missing, Locking::Wait, kept)?;
        }
    })
    .await
}

/// Runs a step, unlocks the queue, and wakes claims.
fn commit<T>(
    shared: &Arc<Shared>,
    mut transaction: Transaction,
    claim: &Claim,
    step: impl FnOnce(&mut Transaction, &Claim) -> Result<T>,
) -> Result<T> {
    let reply = step(&mut transaction, claim);

    let queue = transaction.queue;
    let is_free = queue.is_free();
    queue.shorten_if_free();
    let (file, to_wake) = queue.unlock();
    if let Some(file) = file {
        shared.kept_queue_files.keep(&claim.name, file);
    }
    shared.wake(to_wake);

    if is_free {
        housekeeping::note(shared, &claim.name);
    }
    reply
}

/// Reads a queue, for inspection, between two transactions if the present one ends soon.
///
/// In the middle of a transaction, the lock file may be locked for a grant that has no entry yet.
/// If another process keeps a queue locked for longer than a transaction takes, the queue is read
/// without the lock. So a process that is stopped, or belongs to another user, cannot block an
/// inspection.
pub(super) async fn view<T>(
    shared: &Arc<Shared>,
    name: &Name,
    read: impl Fn(&Transaction) -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    let mut failed = None;
    for _ in 0..VIEWS_MAX {
        let locking = if begun.elapsed() < LOCKED_VIEW_MAX {
            Locking::Try
        } else {
            Locking::Not
        };
        match Transaction::begin(shared, name, Missing::Keep, locking, None) {
            Ok(Some(transaction)) => {
                let reply = read(&transaction);
                transaction.queue.unlock();
                return reply;
            }
            Ok(None) => {}
            // A write may be under way.
            Err(error) if error.is_damaged() && locking == Locking::Not => failed = Some(error),
            Err(error) => return Err(error),
        }
        sleep(VIEW_PAUSE).await;
    }
    Err(failed.unwrap_or_else(|| {
        Error::unavailable("other processes replaced the queue file at each attempt to read it")
    }))
}

/// Runs work on a blocking thread, because it may wait. The work runs to its end even if its caller
/// is dropped.
pub(super) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    run_blocking("a step of the file store", work).await?
}

/// How many times a queue is read again if another process changes it meanwhile.
const VIEWS_MAX: usize = 100;

/// For how long an inspection finds a transaction under way before it reads without the lock. A
/// transaction takes microseconds, unless its process is stopped. This is a time and not a number
/// of attempts, because each of them can take milliseconds on a busy machine.
const LOCKED_VIEW_MAX: Duration = Duration::from_millis(50);
const VIEW_PAUSE: Duration = Duration::from_millis(1);
