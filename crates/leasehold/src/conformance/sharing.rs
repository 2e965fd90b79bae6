//! Readers, writers, slots.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Service;
use super::support::{client, fresh_name, waiters, within_timeout};
use crate::Locks;

async fn clients(service: &dyn Service) -> Option<(Locks, Locks)> {
    let ours = client(service).await;
    if !ours.guarantees().shares {
        let refused = ours
            .rwlock(&fresh_name("refused"))
            .shared()
            .try_acquire()
            .await;
        assert!(
            refused
                .expect_err("refused, never silently something weaker")
                .is_unsupported()
        );
        return None;
    }
    Some((ours, client(service).await))
}

/// Readers hold together, a writer alone.
pub async fn readers_share(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("readers");
    let reader = ours
        .rwlock(&name)
        .shared()
        .acquire()
        .await
        .expect("granted");
    let other = theirs
        .rwlock(&name)
        .shared()
        .try_acquire()
        .await
        .expect("asked")
        .expect("readers share");
    assert_ne!(reader.token(), other.token());
    assert!(
        theirs
            .rwlock(&name)
            .exclusive()
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    reader.release().await.expect("released");
    other.release().await.expect("released");
    let writer = theirs
        .rwlock(&name)
        .exclusive()
        .try_acquire()
        .await
        .expect("asked")
        .expect("readers are gone");
    assert!(
        ours.rwlock(&name)
            .shared()
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    assert!(
        ours.rwlock(&name)
            .exclusive()
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    writer.release().await.expect("released");
}

/// A mutex and a reader-writer lock of one name are one lock: its writer is the mutex.
pub async fn mutex_excludes_readers_and_writers(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("writer");
    let reader = ours
        .rwlock(&name)
        .shared()
        .acquire()
        .await
        .expect("granted");
    assert!(
        theirs
            .mutex(&name)
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    reader.release().await.expect("released");
    let mutex = theirs
        .mutex(&name)
        .try_acquire()
        .await
        .expect("asked")
        .expect("readers are gone");
    assert!(
        ours.rwlock(&name)
            .shared()
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    assert!(
        ours.rwlock(&name)
            .exclusive()
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    mutex.release().await.expect("released");
}

/// A writer gets in although readers overlap without end: those who come later wait behind it.
pub async fn writers_are_not_starved(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("starved");
    let first = ours
        .rwlock(&name)
        .shared()
        .acquire()
        .await
        .expect("granted");
    let writer = theirs.rwlock(&name).exclusive();
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&order);
    let writing = tokio::spawn(async move {
        let held = writer.acquire().await.expect("granted");
        log.lock().push("writer");
        held.release().await.expect("released");
    });
    waiters(&ours, &name, 1).await;
    assert!(
        theirs
            .rwlock(&name)
            .shared()
            .try_acquire()
            .await
            .expect("asked")
            .is_none(),
        "a reader overtook the writer"
    );
    let (late, log) = (ours.rwlock(&name).shared(), Arc::clone(&order));
    let reading = tokio::spawn(async move {
        let held = late.acquire().await.expect("granted");
        log.lock().push("late reader");
        held.release().await.expect("released");
    });
    waiters(&ours, &name, 2).await;
    first.release().await.expect("released");
    within_timeout("the writer is served", writing)
        .await
        .expect("it runs");
    within_timeout("the late reader is served", reading)
        .await
        .expect("it runs");
    assert_eq!(*order.lock(), ["writer", "late reader"]);
}

/// A writer that downgrades lets waiting readers in, keeps other writers out, and keeps its token.
pub async fn downgrade_lets_readers_in(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("downgrade");
    let held = ours
        .rwlock(&name)
        .exclusive()
        .acquire()
        .await
        .expect("granted");
    let (token, reader) = (held.token(), theirs.rwlock(&name).shared());
    let reading = tokio::spawn(async move { reader.acquire().await });
    waiters(&ours, &name, 1).await;
    held.downgrade().await.expect("downgraded");
    held.downgrade().await.expect("twice is once");
    let other = within_timeout("the reader is let in", reading)
        .await
        .expect("it runs")
        .expect("granted");
    assert_eq!(held.token(), token);
    held.check().expect("still held");
    assert!(
        theirs
            .rwlock(&name)
            .exclusive()
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    held.release().await.expect("released");
    other.release().await.expect("released");
    let mutex = ours
        .mutex(&fresh_name("no-readers"))
        .acquire()
        .await
        .expect("granted");
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
        let writer = ours
            .rwlock(&name)
            .exclusive()
            .acquire()
            .await
            .expect("granted");
        let pause = Duration::from_millis(u64::from(round % 5));

        let done = writer.while_held(async {
            tokio::time::sleep(pause).await;
            writer.downgrade().await
        });
        done.await
            .unwrap_or_else(|error| panic!("round {round}: {error}"))
            .expect("downgraded");
        writer.check().expect("still held");

        let other = theirs
            .rwlock(&name)
            .shared()
            .try_acquire()
            .await
            .expect("asked")
            .expect("readers share");
        let lost = tokio::time::timeout(Duration::from_millis(5), writer.lost()).await;
        assert!(lost.is_err(), "round {round}: {lost:?}");

        writer.release().await.expect("released");
        other.release().await.expect("released");
    }
}

async fn downgrade_is_refused(locks: &Locks) {
    let writer = locks
        .rwlock(&fresh_name("downgrade-refused"))
        .exclusive()
        .acquire()
        .await
        .expect("granted");

    let done = writer
        .while_held(writer.downgrade())
        .await
        .expect("still held");
    assert!(
        done.expect_err("refused, never silently something weaker")
            .is_unsupported()
    );

    writer.check().expect("still held");
    writer.release().await.expect("released");
}

/// As many hold as there are slots, and not one more.
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
                .expect("asked")
                .expect("there is a slot"),
        );
    }
    assert!(
        theirs
            .semaphore(&name, 3)
            .try_acquire()
            .await
            .expect("asked")
            .is_none()
    );
    held.pop()
        .expect("three")
        .release()
        .await
        .expect("released");
    let last = theirs
        .semaphore(&name, 3)
        .try_acquire()
        .await
        .expect("asked")
        .expect("there is one again");
    drop((held, last));
    let all = within_timeout(
        "all slots are free",
        ours.semaphore(&name, 3).permits(3).acquire(),
    )
    .await
    .expect("granted");
    all.release().await.expect("released");
    assert!(
        ours.semaphore(&name, 3)
            .permits(4)
            .acquire()
            .await
            .expect_err("more than there are")
            .is_invalid()
    );
    assert!(
        ours.semaphore(&name, 0)
            .acquire()
            .await
            .expect_err("none at all")
            .is_invalid()
    );
}

/// A claim for many slots waits at its place; later claims for few do not slip past it.
pub async fn large_claims_are_not_overtaken(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("big");
    let small = ours.semaphore(&name, 3).acquire().await.expect("granted");
    let big = theirs.semaphore(&name, 3).permits(3);
    let waiting = tokio::spawn(async move { big.acquire().await });
    waiters(&ours, &name, 1).await;
    assert!(
        ours.semaphore(&name, 3)
            .try_acquire()
            .await
            .expect("asked")
            .is_none(),
        "a small claim overtook"
    );
    let later = ours.semaphore(&name, 3);
    let later = tokio::spawn(async move { later.acquire().await });
    waiters(&ours, &name, 2).await;
    small.release().await.expect("released");
    let big = within_timeout("the big claim is served", waiting)
        .await
        .expect("it runs")
        .expect("granted");
    assert!(!later.is_finished(), "a small claim overtook");
    big.release().await.expect("released");
    let later = within_timeout("the small claim is served", later)
        .await
        .expect("it runs")
        .expect("granted");
    later.release().await.expect("released");
}

/// A name in use as one kind or size is refused as another, by name, and free for it afterwards.
pub async fn mixed_kinds_are_refused(service: &dyn Service) {
    let Some((ours, theirs)) = clients(service).await else {
        return;
    };
    let name = fresh_name("kinds");
    let held = ours.semaphore(&name, 3).acquire().await.expect("granted");
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
    held.release().await.expect("released");
    theirs
        .mutex(&name)
        .acquire()
        .await
        .expect("free for any kind")
        .release()
        .await
        .expect("released");
}
