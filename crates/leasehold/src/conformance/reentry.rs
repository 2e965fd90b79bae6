//! Owners who acquire what they hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Service;
use super::intercepts::{FaultyStore, InjectedFaults};
use super::support::{client, fresh_name, locks_over, store, waiters, within_timeout};
use crate::Owner;

/// Five nested acquires are one claim and one store call; the lock is free after the last release, and not before.
pub async fn nested_acquire_sends_no_request(service: &dyn Service) {
    let name = fresh_name("nested");
    let faults = Arc::new(InjectedFaults::default());
    let ours = locks_over(Arc::new(FaultyStore::new(
        store(service).await,
        Arc::clone(&faults),
    )));
    let theirs = client(service).await;
    let (lock, owner) = (ours.reentrant(&name), Owner::new());
    let mut held = vec![lock.acquire(&owner).await.expect("granted")];
    let calls = faults.calls.load(Ordering::SeqCst);
    for _ in 1..5 {
        held.push(
            ours.reentrant(&name)
                .try_acquire(&owner)
                .await
                .expect("asked")
                .expect("it is the owner's"),
        );
    }
    assert_eq!(
        faults.calls.load(Ordering::SeqCst),
        calls,
        "a nested acquire asked the store"
    );
    assert_eq!(
        (
            held[0].count(),
            held.iter()
                .filter(|guard| guard.token() == held[0].token())
                .count()
        ),
        (5, 5)
    );
    assert_eq!(
        theirs
            .inspect(&name)
            .await
            .expect("looked")
            .holders()
            .count(),
        1
    );
    while let Some(guard) = held.pop() {
        assert!(
            theirs
                .mutex(&name)
                .try_acquire()
                .await
                .expect("asked")
                .is_none(),
            "free before the last release"
        );
        guard.release().await.expect("released");
    }
    drop(
        theirs
            .mutex(&name)
            .try_acquire()
            .await
            .expect("asked")
            .expect("free after the last release"),
    );
}

/// Another owner waits, in the same process too; an owner's own tasks do not queue up behind each other.
pub async fn owners_exclude_each_other(service: &dyn Service) {
    let name = fresh_name("owners");
    let locks = client(service).await;
    let (lock, me, other) = (locks.reentrant(&name), Owner::new(), Owner::new());
    let (one, two) = futures_util::future::join(lock.acquire(&me), lock.acquire(&me)).await;
    let (one, two) = (one.expect("granted"), two.expect("granted"));
    assert_eq!(one.token(), two.token());
    assert!(lock.try_acquire(&other).await.expect("asked").is_none());
    assert!(
        lock.try_acquire_for(&other, Duration::from_millis(20))
            .await
            .expect("asked")
            .is_none()
    );
    let theirs = lock.clone();
    let waiting =
        tokio::spawn(async move { theirs.acquire(&other).await.map(|guard| guard.token()) });
    waiters(&locks, &name, 1).await;
    drop(one);
    two.check().expect("one of two was dropped");
    two.release().await.expect("released");
    within_timeout("the other owner is served", waiting)
        .await
        .expect("it runs")
        .expect("granted");

    let outer = within_timeout("free again", lock.acquire(&me))
        .await
        .expect("granted");
    locks
        .break_hold(&name, outer.token())
        .await
        .expect("asked")
        .expect("held");
    within_timeout("the loss is heard", outer.lost()).await;
    assert!(
        lock.acquire(&me)
            .await
            .expect_err("not anew behind the outer guard's back")
            .is_lost()
    );
}

/// Threads of one owner that acquire again at the same moment are in nobody's way.
pub async fn nested_acquire_never_waits(service: &dyn Service) {
    let lock = client(service).await.reentrant(&fresh_name("nested"));
    let owner = Owner::new();
    let outer = lock.acquire(&owner).await.expect("granted");
    let again = || {
        (0..10_000).all(|_| {
            pollster::block_on(lock.try_acquire(&owner))
                .expect("asked")
                .is_some()
        })
    };
    let all_held = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(again)).collect();
        threads
            .into_iter()
            .all(|thread| thread.join().expect("no panic"))
    });
    assert!(all_held, "a nested acquire was refused");
    assert_eq!(outer.count(), 1);
    outer.release().await.expect("released");
}
