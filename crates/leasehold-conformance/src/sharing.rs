//! Readers and writers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Service;
use super::shares::clients_with_readers;
use super::support::{acquire, fresh_name, release, try_acquire, waiters, within_timeout};
use leasehold_core::Lock;

/// Readers hold together, and a writer holds alone.
///
/// Shows G-01, G-06, G-55, S10.
pub async fn readers_share(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_readers(service).await else {
        return;
    };
    let name = fresh_name("readers");
    let our_lock = ours.rwlock(&name);
    let their_lock = theirs.rwlock(&name);

    let reader = acquire(&our_lock.shared()).await;
    let other = try_acquire(&their_lock.shared())
        .await
        .expect("readers share");
    assert_ne!(reader.token(), other.token());
    assert!(try_acquire(&their_lock.exclusive()).await.is_none());
    release(reader).await;
    release(other).await;

    let writer = try_acquire(&their_lock.exclusive())
        .await
        .expect("readers are gone");
    assert!(try_acquire(&our_lock.shared()).await.is_none());
    assert!(try_acquire(&our_lock.exclusive()).await.is_none());
    release(writer).await;
}

/// A mutex and a reader-writer lock of one name are one lock: a writer is a mutex.
///
/// Shows G-01.
pub async fn mutex_excludes_readers_and_writers(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_readers(service).await else {
        return;
    };
    let name = fresh_name("writer");
    let our_lock = ours.rwlock(&name);

    let reader = acquire(&our_lock.shared()).await;
    assert!(try_acquire(&theirs.mutex(&name)).await.is_none());
    release(reader).await;

    let mutex = try_acquire(&theirs.mutex(&name))
        .await
        .expect("readers are gone");
    assert!(try_acquire(&our_lock.shared()).await.is_none());
    assert!(try_acquire(&our_lock.exclusive()).await.is_none());
    release(mutex).await;
}

/// A writer is granted although readers overlap without end: later readers wait behind it.
///
/// Without a queue, it is granted when the readers have left.
///
/// Shows G-05, L4.
pub async fn writers_are_not_starved(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_readers(service).await else {
        return;
    };
    let name = fresh_name("starved");
    let granted = Granted::default();

    let first = acquire(&ours.rwlock(&name).shared()).await;
    let writing = granted.wait_as("writer", theirs.rwlock(&name).exclusive());
    if !ours.guarantees().fifo {
        waiters(&theirs, &name, 1).await;
        release(first).await;
        let written = within_timeout("the writer is granted", writing).await;
        return written.expect("the task ran");
    }
    waiters(&ours, &name, 1).await;
    let early = try_acquire(&theirs.rwlock(&name).shared()).await;
    assert!(early.is_none(), "a reader overtook the writer");

    let reading = granted.wait_as("late reader", ours.rwlock(&name).shared());
    waiters(&ours, &name, 2).await;
    release(first).await;

    let written = within_timeout("the writer is granted", writing).await;
    written.expect("the task ran");
    let read = within_timeout("the late reader is granted", reading).await;
    read.expect("the task ran");
    assert_eq!(*granted.0.lock(), ["writer", "late reader"]);
}

/// The claimants in the order of their grants.
#[derive(Clone, Default)]
struct Granted(Arc<Mutex<Vec<&'static str>>>);

impl Granted {
    /// Acquires a lock in a task of its own, and releases it at once.
    fn wait_as(&self, claimant: &'static str, lock: Lock) -> JoinHandle<()> {
        let granted = self.clone();
        tokio::spawn(async move {
            let held = acquire(&lock).await;
            granted.0.lock().push(claimant);
            release(held).await;
        })
    }
}
