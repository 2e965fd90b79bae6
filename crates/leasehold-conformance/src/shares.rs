//! Whether a store has readers and slots, or refuses them.

use super::Service;
use super::support::{client, fresh_name};
use leasehold_core::{Lock, Locks, SemaphoreSupport};

/// Two clients of the service; `None` if its store [refuses](without_readers) readers.
pub(super) async fn clients_with_readers(service: &dyn Service) -> Option<(Locks, Locks)> {
    if without_readers(service).await {
        return None;
    }
    Some((client(service).await, client(service).await))
}

/// Two clients of the service; `None` if its store refuses slots.
pub(super) async fn clients_with_slots(service: &dyn Service) -> Option<(Locks, Locks)> {
    let locks = client(service).await;
    if locks.guarantees().semaphore == SemaphoreSupport::Unsupported {
        refuses(locks.semaphore(fresh_name("refused"), 3)).await;
        return None;
    }
    Some((locks, client(service).await))
}

/// Whether the store states that it has no readers.
///
/// Such a store must refuse a reader as unsupported.
pub(super) async fn without_readers(service: &dyn Service) -> bool {
    let locks = client(service).await;
    if locks.guarantees().rwlock {
        return false;
    }
    refuses(locks.rwlock(fresh_name("refused")).shared()).await;
    true
}

/// Checks that the lock is refused. A grant would have a weaker guarantee than requested.
async fn refuses(lock: Lock) {
    let refused = lock.try_acquire().await;
    let error = refused.expect_err("refused, and not granted with a weaker guarantee");
    assert!(error.is_unsupported(), "{error}");
}
