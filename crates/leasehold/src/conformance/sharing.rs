//! Readers, writers and semaphores.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Service;
use super::support::{acquire, client, fresh_name, release, try_acquire, waiters, within_timeout};
use crate::Locks;

/// Readers hold together, and a writer holds alone.
pub async fn readers_share(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("readers");
    let reader = acquire(&ours.rwlock(&name).shared()).await;
    let other = try_acquire(&theirs.rwlock(&name).shared())
        .await
        .expect("readers share");
    assert_ne!(reader.token(), other.token());
    assert!(
        try_acquire(&theirs.rwlock(&name).exclusive())
            .await
            .is_none()
    );
    release(reader).await;
    release(other).await;
    let writer = try_acquire(&theirs.rwlock(&name).exclusive())
        .await
        .expect("readers are gone");
    assert!(try_acquire(&ours.rwlock(&name).shared()).await.is_none());
    assert!(try_acquire(&ours.rwlock(&name).exclusive()).await.is_none());
    release(writer).await;
}

/// A mutex and a reader-writer lock of one name are one lock: a writer is a mutex.
pub async fn mutex_excludes_readers_and_writers(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("writer");
    let reader = acquire(&ours.rwlock(&name).shared()).await;
    assert!(try_acquire(&theirs.mutex(&name)).await.is_none());
    release(reader).await;
    let mutex = try_acquire(&theirs.mutex(&name))
        .await
        .expect("readers are gone");
    assert!(try_acquire(&ours.rwlock(&name).shared()).await.is_none());
    assert!(try_acquire(&ours.rwlock(&name).exclusive()).await.is_none());
    release(mutex).await;
}

/// A writer is granted although readers overlap without end: later readers wait behind it.
pub async fn writers_are_not_starved(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("starved");
    let first = acquire(&ours.rwlock(&name).shared()).await;
    let writer = theirs.rwlock(&name).exclusive();
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&order);
    let writing = tokio::spawn(async move {
        let held = acquire(&writer).await;
        log.lock().push("writer");
        release(held).await;
    });
    waiters(&ours, &name, 1).await;
    assert!(
        try_acquire(&theirs.rwlock(&name).shared()).await.is_none(),
        "a reader overtook the writer"
    );
    let late = ours.rwlock(&name).shared();
    let log = Arc::clone(&order);
    let reading = tokio::spawn(async move {
        let held = acquire(&late).await;
        log.lock().push("late reader");
        release(held).await;
    });
    waiters(&ours, &name, 2).await;
    release(first).await;
    within_timeout("the writer is granted", writing)
        .await
        .expect("the task ran");
    within_timeout("the late reader is granted", reading)
        .await
        .expect("the task ran");
    assert_eq!(*order.lock(), ["writer", "late reader"]);
}

/// A writer that downgrades lets waiting readers in and keeps other writers out. It keeps its
/// token.
pub async fn downgrade_lets_readers_in(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("downgrade");
    let held = acquire(&ours.rwlock(&name).exclusive()).await;
    let token = held.token();
    let reader = theirs.rwlock(&name).shared();
    let reading = tokio::spawn(async move { reader.acquire().await });
    waiters(&ours, &name, 1).await;
    held.downgrade().await.expect("downgraded");
    held.downgrade()
        .await
        .expect("a second downgrade changes nothing");
    let other = within_timeout("the reader is let in", reading)
        .await
        .expect("the task ran")
        .expect("granted");
    assert_eq!(held.token(), token);
    held.check().expect("still held");
    assert!(
        try_acquire(&theirs.rwlock(&name).exclusive())
            .await
            .is_none()
    );
    release(held).await;
    release(other).await;
    let mutex = acquire(&ours.mutex(&fresh_name("no-readers"))).await;
    assert!(
        mutex
            .downgrade()
            .await
            .expect_err("a mutex has no readers")
            .is_unsupported()
    );
}

/// Rounds on each of the two runtimes. Half of all rounds failed on ZooKeeper while a pending
/// request counted as a loss.
const DOWNGRADES: u32 = 25;

/// A holder that downgrades keeps the lock, and no call that awaits its loss returns: on a runtime
/// of one thread and on one of two. A store without shares refuses the downgrade, and the hold goes
/// on.
pub async fn downgrade_is_not_reported_as_loss(service: &dyn Service) {
    std::thread::scope(|scope| {
        let on_one_thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .expect("a runtime starts")
                .block_on(downgrade_while_loss_is_awaited(service));
        });
        on_one_thread
            .join()
            .expect("no round fails on a runtime of one thread");
    });

    downgrade_while_loss_is_awaited(service).await;
}

async fn downgrade_while_loss_is_awaited(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return downgrade_is_refused(&client(service).await).await;
    };

    for round in 0..DOWNGRADES {
        let name = fresh_name("downgrade-awaited");
        let writer = acquire(&ours.rwlock(&name).exclusive()).await;
        let pause = Duration::from_millis(u64::from(round % 5));

        let done = writer.while_held(async {
            tokio::time::sleep(pause).await;
            writer.downgrade().await
        });
        done.await
            .unwrap_or_else(|error| panic!("round {round}: {error}"))
            .expect("downgraded");
        writer.check().expect("still held");

        let other = try_acquire(&theirs.rwlock(&name).shared())
            .await
            .expect("readers share");
        let lost = tokio::time::timeout(Duration::from_millis(5), writer.lost()).await;
        assert!(lost.is_err(), "round {round}: {lost:?}");

        release(writer).await;
        release(other).await;
    }
}

async fn downgrade_is_refused(locks: &Locks) {
    let writer = acquire(&locks.rwlock(&fresh_name("downgrade-refused")).exclusive()).await;

    let done = writer
        .while_held(writer.downgrade())
        .await
        .expect("still held");
    assert!(
        done.expect_err("refused, and not granted with a weaker guarantee")
            .is_unsupported()
    );

    writer.check().expect("still held");
    release(writer).await;
}

/// The number of holders reaches the number of slots and does not exceed it.
pub async fn semaphore_slots_are_counted(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("slots");
    let mut held = Vec::new();
    for round in 0..3 {
        let locks = if round % 2 == 0 { &ours } else { &theirs };
        held.push(
            locks
                .semaphore(&name, 3)
                .try_acquire()
                .await
                .expect("the store replies")
                .expect("there is a slot"),
        );
    }
    assert!(try_acquire(&theirs.semaphore(&name, 3)).await.is_none());
    held.pop()
        .expect("three")
        .release()
        .await
        .expect("released");
    let last = try_acquire(&theirs.semaphore(&name, 3))
        .await
        .expect("there is a slot again");
    drop((held, last));
    let all = within_timeout(
        "all slots are free",
        ours.semaphore(&name, 3).permits(3).acquire(),
    )
    .await
    .expect("granted");
    release(all).await;
    assert!(
        ours.semaphore(&name, 3)
            .permits(4)
            .acquire()
            .await
            .expect_err("more permits than slots")
            .is_invalid()
    );
    assert!(
        ours.semaphore(&name, 0)
            .acquire()
            .await
            .expect_err("zero slots")
            .is_invalid()
    );
}

/// A claim for many slots keeps its position. Later claims for few slots do not overtake it.
pub async fn large_claims_are_not_overtaken(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("big");
    let small = acquire(&ours.semaphore(&name, 3)).await;
    let big = theirs.semaphore(&name, 3).permits(3);
    let waiting = tokio::spawn(async move { big.acquire().await });
    waiters(&ours, &name, 1).await;
    assert!(
        try_acquire(&ours.semaphore(&name, 3)).await.is_none(),
        "a small claim overtook"
    );
    let later = ours.semaphore(&name, 3);
    let later = tokio::spawn(async move { later.acquire().await });
    waiters(&ours, &name, 2).await;
    release(small).await;
    let big = within_timeout("the big claim is granted", waiting)
        .await
        .expect("the task ran")
        .expect("granted");
    assert!(!later.is_finished(), "a small claim overtook");
    release(big).await;
    let later = within_timeout("the small claim is granted", later)
        .await
        .expect("the task ran")
        .expect("granted");
    release(later).await;
}

/// A name in use as one kind or size is refused as another, and the error names the present one.
/// Afterwards the name is free for any kind.
pub async fn mixed_kinds_are_refused(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("kinds");
    let held = acquire(&ours.semaphore(&name, 3)).await;
    for other in [
        theirs.mutex(&name),
        theirs.semaphore(&name, 4),
        theirs.rwlock(&name).shared(),
    ] {
        let error = other.try_acquire().await.expect_err("refused");
        assert!(
            error.is_mismatch() && error.to_string().contains("3 slots"),
            "{error}"
        );
    }
    release(held).await;
    theirs
        .mutex(&name)
        .acquire()
        .await
        .expect("free for any kind")
        .release()
        .await
        .expect("released");
}

/// Two clients of the service, if its store has shares.
async fn clients(service: &dyn Service) -> Option<(Locks, Locks)> {
    if !has_shares(service).await {
        return None;
    }
    Some((client(service).await, client(service).await))
}

/// Whether the store has shares. A store without them must refuse them as unsupported.
pub(super) async fn has_shares(service: &dyn Service) -> bool {
    let locks = client(service).await;
    if locks.guarantees().shares {
        return true;
    }

    let lock = locks.rwlock(&fresh_name("refused")).shared();
    let refused = lock.try_acquire().await;
    assert!(
        refused
            .expect_err("refused, and not granted with a weaker guarantee")
            .is_unsupported()
    );
    false
}
