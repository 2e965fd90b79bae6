//! Owners that acquire a lock that they hold.

use std::time::Duration;

use super::Service;
use super::faulty_client::FaultyClient;
use super::support::{
    break_held, client, fresh_name, granted, store, try_acquire, waiters, within_timeout,
};
use leasehold_core::{Error, Locks, Owner};

/// An owner is one in all clients of a store. Through another URL of the store, which the client
/// cannot know, the owner is refused before it waits for itself.
///
/// Shows G-08, S9.
pub async fn owner_is_one_in_all_clients_of_a_store(service: &dyn Service) {
    let name = fresh_name("owner");
    let locks = client(service).await;
    let lock = locks.reentrant(&name);
    let again = client(service).await.reentrant(&name);
    let owner = Owner::new();

    let outer = lock.acquire(&owner).await.expect("granted");
    let nested = within_timeout("it is nested", again.acquire(&owner)).await;
    assert_eq!(nested.expect("it is nested").token(), outer.token());
    let nested = again.try_acquire(&owner).await.expect("it is nested");
    assert!(nested.is_ok(), "the owner waits for itself");

    let store = store(service).await;
    let is_in_process = store.extensions().in_process.is_some();
    let aliases = Locks::from_arc(store, "alias:").expect("the background thread runs");
    let alias = aliases.reentrant(&name);
    let refused = |error: Error| {
        let text = error.to_string();
        assert!(
            error.is_invalid() && text.contains("would wait for itself"),
            "{text}"
        );
    };
    match within_timeout("nothing waits", alias.acquire(&owner)).await {
        Ok(nested) => assert!(is_in_process && nested.token() == outer.token()),
        Err(error) => refused(error),
    }

    // Of two acquires that begin together, the second one is refused once the first is granted.
    let name = fresh_name("together");
    let (lock, alias) = (locks.reentrant(&name), aliases.reentrant(&name));
    let both = futures_util::future::join(lock.acquire(&owner), alias.acquire(&owner));
    match within_timeout("neither waits for the other", both).await {
        (Ok(one), Ok(two)) => assert!(is_in_process && one.token() == two.token()),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => refused(error),
        (Err(one), Err(two)) => panic!("none is granted: {one}, {two}"),
    }
}

/// Five nested acquires are one claim and one request. The lock is free after the last release, and
/// not before. In Redisson, each nested acquire raises the token, and that of a write lock also adds
/// a lease to the remaining time.
///
/// Shows G-08, S9.
pub async fn nested_acquire_sends_no_request(service: &dyn Service) {
    let name = fresh_name("nested");
    let faulty = FaultyClient::connect(service).await;
    let theirs = client(service).await;
    let lock = faulty.locks.reentrant(&name);
    let owner = Owner::new();

    let mut held = vec![lock.acquire(&owner).await.expect("granted")];
    let calls = faulty.faults.calls();
    for _ in 1..5 {
        let nested = faulty.locks.reentrant(&name);
        let guard = nested.try_acquire(&owner).await.expect("the store replies");
        held.push(guard.expect("the owner holds it"));
    }
    let sent = faulty.faults.calls() - calls;
    assert_eq!(sent, 0, "a nested acquire sent a request");

    assert_eq!(held[0].count(), 5);
    let token = held[0].token();
    assert!(held.iter().all(|guard| guard.token() == token));
    let lock_state = theirs.inspect(&name).await.expect("inspected");
    assert_eq!(lock_state.holders().count(), 1);

    while let Some(guard) = held.pop() {
        let refused = try_acquire(&theirs.mutex(&name)).await;
        assert!(refused.is_none(), "free before the last release");
        guard.release().await.expect("released");
    }
    let free = try_acquire(&theirs.mutex(&name)).await;
    drop(free.expect("free after the last release"));
}

/// Another owner waits, even in the same process. The tasks of one owner do not queue behind each
/// other.
///
/// Shows G-08, S9.
pub async fn owners_exclude_each_other(service: &dyn Service) {
    let name = fresh_name("owners");
    let locks = client(service).await;
    let lock = locks.reentrant(&name);
    let me = Owner::new();
    let other = Owner::new();

    let both = futures_util::future::join(lock.acquire(&me), lock.acquire(&me));
    let (one, two) = within_timeout("the owner does not wait for itself", both).await;
    let one = one.expect("granted");
    let two = two.expect("granted");
    assert_eq!(one.token(), two.token());

    let refused = lock.try_acquire(&other).await;
    assert!(refused.expect("the store replies").is_err());
    let refused = lock
        .try_acquire_for(&other, Duration::from_millis(20))
        .await;
    assert!(refused.expect("the store replies").is_err());

    let theirs = lock.clone();
    let waiting =
        tokio::spawn(async move { theirs.acquire(&other).await.map(|guard| guard.token()) });
    waiters(&locks, &name, 1).await;

    drop(one);
    two.check().expect("one of two guards was dropped");
    two.release().await.expect("released");
    granted(waiting).await;

    let outer = within_timeout("free again", lock.acquire(&me))
        .await
        .expect("granted");
    break_held(&locks, &name, outer.token()).await;
    within_timeout("the holder is notified", outer.lost()).await;
    let refused = lock.acquire(&me).await;
    assert!(refused.expect_err("the outer guard is lost").is_lost());
}

/// Threads of one owner that acquire again at the same moment do not block each other.
///
/// Shows G-08, S9.
pub async fn nested_acquire_never_waits(service: &dyn Service) {
    let lock = client(service).await.reentrant(fresh_name("nested"));
    let owner = Owner::new();
    let outer = lock.acquire(&owner).await.expect("granted");

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let nested = pollster::block_on(lock.try_acquire(&owner));
                    let guard = nested.expect("the store replies");
                    drop(guard.expect("a nested acquire was refused"));
                }
            });
        }
    });

    assert_eq!(outer.count(), 1);
    outer.release().await.expect("released");
}
