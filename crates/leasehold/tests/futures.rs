//! Properties of every public type and future: `Send`, a short `Debug`, and no need of a runtime.
#![allow(missing_docs)]

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold::store::{Claim, Intercept, Intercepted, Store};
use leasehold::stores::Memory;
use leasehold::{
    Election, Guard, LeaderObserver, Leadership, Lock, Locks, LossReason, MultiGuard, MultiLock,
    Observer, Owner, Reentrant, ReentrantGuard, Result, RwLock, Watch, blocking,
};
use leasehold_conformance::support::within_timeout;
use tokio::sync::Semaphore;

fn send<T: Send>(value: T) -> T {
    value
}

fn shared<T: Send + Sync + UnwindSafe + RefUnwindSafe + 'static>() {}

#[test]
fn locks_and_guards_are_shared_and_cross_a_caught_panic() {
    shared::<Locks>();
    shared::<Lock>();
    shared::<RwLock>();
    shared::<Reentrant>();
    shared::<Owner>();
    shared::<Guard>();
    shared::<ReentrantGuard>();
    shared::<MultiLock>();
    shared::<MultiGuard>();
    shared::<Election>();
    shared::<Leadership>();
    shared::<Watch>();
    shared::<Observer>();
    shared::<LeaderObserver>();
    shared::<leasehold::Error>();
    shared::<blocking::Locks>();
    shared::<blocking::Lock>();
    shared::<blocking::Guard>();
    shared::<blocking::ReentrantGuard>();
    shared::<blocking::Observer>();
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

/// Shows that futures own what they need: each line makes the lock inside the call.
#[tokio::test]
async fn acquires_are_spawned_and_selected_on() {
    let locks = leasehold::open("memory:").await.expect("opened");
    let owner = Owner::new();

    let spawned = tokio::spawn(locks.mutex("a").acquire());
    let guard = spawned.await.expect("it runs").expect("granted");
    tokio::select! {
        refused = locks.mutex("a").try_acquire() => {
            let refused = refused.expect("the store replies").expect_err("it is held");
            assert_eq!(refused.ahead, Some(1));
        }
        () = std::future::pending() => {}
    }

    for acquired in [
        tokio::spawn(locks.reentrant("b").acquire(&owner))
            .await
            .is_ok(),
        tokio::spawn(locks.multi_lock(["c", "d"]).acquire())
            .await
            .is_ok(),
        tokio::spawn(locks.election("e").campaign("here"))
            .await
            .is_ok(),
    ] {
        assert!(acquired);
    }
    guard.release().await.expect("released");
}

/// A service that drains may still serve requests, whose guards are dropped too.
#[tokio::test]
async fn drain_ends_while_later_departures_are_under_way() {
    let store = OneByOne::default();
    let leaves = Arc::clone(&store.leaves);
    let locks = Locks::from_store(Intercepted(store), "memory:").expect("the thread runs");
    let first = locks.mutex("a").acquire().await.expect("granted");
    let later = locks.mutex("b").acquire().await.expect("granted");

    drop(first);
    let mut draining = pin!(leasehold::drain());
    assert_eq!(draining.as_mut().now_or_never(), None);
    drop(later);

    leaves.add_permits(1);
    within_timeout("the first has left", draining).await;
    leaves.add_permits(1);
}

/// A store whose claims leave when the test lets them, in the order in which they asked.
#[derive(Debug)]
struct OneByOne {
    store: Memory,
    leaves: Arc<Semaphore>,
}

impl Default for OneByOne {
    fn default() -> Self {
        Self {
            store: Memory::default(),
            leaves: Arc::new(Semaphore::new(0)),
        }
    }
}

#[async_trait]
impl Intercept for OneByOne {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let permit = self.leaves.acquire().await.expect("it is never closed");
        permit.forget();
        self.store.leave(claim).await
    }
}

/// A task of its own observes the end of a hold, and needs no guard for it.
#[tokio::test]
async fn watch_reports_a_loss_and_ends_with_the_hold() {
    let store = Memory::new();
    let locks = Locks::from_store(store.clone(), "memory:").expect("opened");
    let held = locks.mutex("a").acquire().await.expect("granted");
    let released = locks.mutex("b").acquire().await.expect("granted");
    let both = locks
        .multi_lock(["c", "d"])
        .acquire()
        .await
        .expect("granted");

    let [first, second, third] = [held.watch(), released.watch(), both.watch()];
    let spawn = |watch: &Watch| tokio::spawn(watch.clone().lost());
    let [end_of_held, end, end_of_both] = [&first, &second, &third].map(spawn);
    first.check().expect("it is held");
    assert!(second.remaining() > Duration::ZERO);

    store.revoke("a");
    assert_eq!(
        end_of_held.await.expect("it runs"),
        Some(LossReason::Revoked)
    );
    assert!(first.check().expect_err("it is lost").is_lost());

    released.release().await.expect("released");
    assert_eq!(end.await.expect("it runs"), None);
    assert_eq!(second.remaining(), Duration::ZERO);

    // The guard is dropped because of the loss, before the task runs.
    store.revoke("d");
    drop(both);
    let reason = end_of_both.await.expect("it runs");
    assert_eq!(reason, Some(LossReason::Revoked));
    assert!(third.check().is_err());
}

/// Texts of guards end in the logs of programs, where the names of other locks are of no use.
#[cfg(feature = "file")]
#[tokio::test]
async fn debug_shows_a_lock_its_store_and_its_token_only() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = format!("file:{}", folder.path().display());

    for url in ["memory:", &file] {
        let locks = leasehold::open(url).await.expect("opened");
        let other = locks.mutex("other").label("theirs").acquire().await;
        let lock = locks.mutex("nightly");
        let guard = lock.acquire().await.expect("granted");
        let shown = format!("{guard:?}");
        let token = format!("token: {}", guard.token());
        assert!(
            shown.contains("\"nightly\"") && shown.contains(url),
            "{shown}"
        );
        assert!(shown.contains(&token), "{shown}");

        let owned = locks.reentrant("owned").acquire(&Owner::new()).await;
        let both = locks.multi_lock(["one", "two"]);
        let held = both.acquire().await.expect("granted");
        let election = locks.election("leader");
        let leadership = election.campaign("here").await.expect("elected");
        let observer = locks.observe("nightly").await.expect("observed");
        let blocking = blocking::Locks::from(locks.clone());
        let values: [&dyn std::fmt::Debug; 12] = [
            &locks,
            &lock,
            &guard,
            &guard.watch(),
            &owned,
            &both,
            &held,
            &election,
            &leadership,
            &observer,
            &blocking,
            &locks.rwlock("config"),
        ];

        for value in values {
            let shown = format!("{value:?}");
            assert!(shown.len() < 400, "{} bytes: {shown}", shown.len());
            assert!(
                !shown.contains("other") && !shown.contains("theirs"),
                "{shown}"
            );
        }
        drop(other);
    }
}

/// Any executor can poll the futures. It may be gone when the guard is dropped.
#[test]
fn futures_run_on_any_executor() {
    let locks = pollster::block_on(leasehold::open("memory:")).expect("opened");
    let guard = pollster::block_on(locks.mutex("a").acquire()).expect("granted");
    let refused = pollster::block_on(locks.mutex("a").try_acquire_for(Duration::from_millis(20)))
        .expect("the store replies");
    assert!(refused.is_err());

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
        (locks.mutex("a").label(&"x".repeat(256)), "label"),
        (locks.mutex("a").permits(2), "slots"),
        (locks.semaphore("a", 0), "slots"),
        (locks.semaphore("a", 1_025).numbered(), "slots"),
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

    // The names of its numbers would be too long.
    let long = locks.semaphore("a".repeat(505), 2).numbered();
    let error = long.try_acquire().await.expect_err("refused");
    assert!(error.is_invalid(), "{error}");
    assert!(locks.list("", 9).await.expect("listed").is_empty());
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
    assert!(again.is_err(), "the name is another lock");
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
