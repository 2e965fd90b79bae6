//! Properties of every public type and future: `Send`, and no need of a runtime.
#![allow(missing_docs)]

use std::time::Duration;

use leasehold::{Guard, Lock, Locks, Owner, Reentrant, ReentrantGuard, RwLock, blocking};

fn send<T: Send>(value: T) -> T {
    value
}

fn shared<T: Send + Sync + 'static>() {}

#[test]
fn locks_and_guards_are_send_and_sync() {
    shared::<Locks>();
    shared::<Lock>();
    shared::<RwLock>();
    shared::<Reentrant>();
    shared::<Owner>();
    shared::<Guard>();
    shared::<ReentrantGuard>();
    shared::<leasehold::Error>();
    shared::<blocking::Locks>();
    shared::<blocking::Lock>();
    shared::<blocking::Guard>();
    shared::<blocking::ReentrantGuard>();
}

#[tokio::test]
async fn every_future_is_send() {
    let locks = send(leasehold::open("memory:")).await.expect("opened");
    let lock = locks.rwlock("a").exclusive();
    let guard = send(lock.acquire()).await.expect("granted");
    drop(send(lock.try_acquire()));
    drop(send(lock.try_acquire_for(Duration::ZERO)));

    drop(send(guard.lost()));
    drop(send(guard.until_remaining(Duration::ZERO)));
    drop(send(guard.while_held(async {})));
    drop(send(guard.downgrade()));
    drop(send(locks.inspect("a")));
    drop(send(locks.list("", 1)));
    drop(send(locks.break_hold("a", guard.token())));
    drop(send(guard.release()));

    let lock = locks.reentrant("b");
    let owner = Owner::new();
    drop(send(lock.try_acquire(&owner)));
    drop(send(lock.try_acquire_for(&owner, Duration::ZERO)));
    let guard = send(lock.acquire(&owner)).await.expect("granted");
    drop(send(guard.release()));
}

/// Any executor can poll the futures. It may be gone when the guard is dropped.
#[test]
fn futures_run_on_any_executor() {
    let locks = pollster::block_on(leasehold::open("memory:")).expect("opened");
    let guard = pollster::block_on(locks.mutex("a").acquire()).expect("granted");
    let refused = pollster::block_on(locks.mutex("a").try_acquire_for(Duration::from_millis(20)))
        .expect("the store replies");
    assert!(refused.is_none());

    drop(guard);
    pollster::block_on(locks.mutex("a").acquire())
        .expect("granted again")
        .check()
        .expect("held");
}

/// The caller's runtime polls no future for longer than the lease; the lock is still held.
///
/// Shows G-13.
#[tokio::test(flavor = "current_thread")]
async fn busy_runtime_keeps_its_lock() {
    let locks = leasehold::open("memory:").await.expect("opened");
    let lease = Duration::from_secs(1);
    let guard = locks
        .mutex("a")
        .lease(lease)
        .acquire()
        .await
        .expect("granted");

    let busy = std::time::Instant::now();
    while busy.elapsed() < lease * 5 / 2 {
        std::hint::spin_loop();
    }

    guard.check().expect("renewed by the background thread");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn invalid_options_are_refused_by_name() {
    let locks = leasehold::open("memory:").await.expect("opened");
    let second = Duration::from_secs(1);

    for (lock, word) in [
        (locks.mutex("a").lease(Duration::from_millis(99)), "lease"),
        (locks.mutex("a").lease(Duration::from_secs(86_401)), "lease"),
        (locks.mutex("a").max_hold(Duration::ZERO), "max_hold"),
        (locks.mutex("a").label(&"x".repeat(65)), "label"),
        (locks.mutex("a").permits(2), "slots"),
        (locks.semaphore("a", 0), "slots"),
        (locks.semaphore("a", u32::MAX), "slots"),
    ] {
        let error = lock.try_acquire_for(second).await.expect_err("refused");
        assert!(
            error.is_invalid() && error.to_string().contains(word),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("cannot acquire \"a\" on memory"),
            "{error}"
        );
    }
}

/// Callers have names as texts of their own, and as the names that `list` returns.
#[tokio::test]
async fn names_are_taken_as_texts_and_as_names() {
    let locks = leasehold::open("memory:").await.expect("opened");
    let text = String::from("a");
    let held = locks.mutex(&text).acquire().await.expect("granted");
    let names = locks.list("", 10).await.expect("listed");
    let name = names.first().expect("it is in use");

    let again = locks.mutex(name).try_acquire().await.expect("read");
    assert!(again.is_none(), "the name is another lock");
    assert_eq!(
        locks.inspect(name).await.expect("read").holders().count(),
        1
    );
    assert_eq!(
        locks.inspect(text).await.expect("read").holders().count(),
        1
    );

    let token = held.token();
    assert!(
        locks
            .break_hold(name.clone(), token)
            .await
            .expect("broken")
            .is_some()
    );
}
