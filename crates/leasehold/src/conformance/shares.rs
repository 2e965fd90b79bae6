//! Whether a store has shares, or refuses them.

use super::Service;
use super::support::{client, fresh_name};
use crate::Locks;

/// Two clients of the service; `None` if its store [refuses](are_refused) shares.
pub(super) async fn clients(service: &dyn Service) -> Option<(Locks, Locks)> {
    if are_refused(service).await {
        return None;
    }
    Some((client(service).await, client(service).await))
}

/// Whether the store states that it has no shares.
///
/// Such a store must refuse a reader and a slot as unsupported. A grant would have a weaker
/// guarantee than requested.
pub(super) async fn are_refused(service: &dyn Service) -> bool {
    let locks = client(service).await;
    if locks.guarantees().shares {
        return false;
    }

    let name = fresh_name("refused");
    for lock in [locks.rwlock(&name).shared(), locks.semaphore(&name, 3)] {
        let refused = lock.try_acquire().await;
        let error = refused.expect_err("refused, and not granted with a weaker guarantee");
        assert!(error.is_unsupported(), "{error}");
    }
    true
}
