//! Locks of several stores at once.
#![cfg(all(feature = "file", feature = "redis"))]
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lab_servers::Redis;
use leasehold::store::{Claim, Intercept, Intercepted, Store};
use leasehold::stores::Memory;
use leasehold::{Error, Lock, Locks, Result, Token, blocking, multi_lock};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Shows G-46.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposing_orders_of_stores_do_not_deadlock() {
    let redis = Redis::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("file:{}", folder.path().display());
    let inside: Arc<[AtomicBool; 2]> = Arc::default();
    let mut tasks = JoinSet::new();

    for number in 0..16 {
        let on_redis = leasehold::open(&redis.url()).await.expect("it opens");
        let on_disk = leasehold::open(&url).await.expect("it opens");
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            let mut pair: Vec<Lock> = vec![on_redis.mutex("a"), on_disk.mutex("a")];
            if number % 2 == 0 {
                pair.reverse();
            }
            for _ in 0..4 {
                let guard = multi_lock(pair.clone()).acquire().await.expect("granted");
                for inside in inside.iter() {
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold at once");
                }
                tokio::task::yield_now().await;
                for inside in inside.iter() {
                    inside.store(false, Ordering::SeqCst);
                }
                guard.release().await.expect("released");
            }
        });
    }

    let all_end = async {
        while let Some(done) = tasks.join_next().await {
            done.expect("no client fails");
        }
    };
    timeout(Duration::from_secs(30), all_end)
        .await
        .expect("every client is granted");
}

/// Shows G-46.
#[tokio::test]
async fn store_with_two_urls_is_refused_for_the_same_name() {
    let store = Memory::new();
    let one = Locks::from_store(store.clone(), "memory:one").expect("it opens");
    let two = Locks::from_store(store, "memory:two").expect("it opens");

    let both = [one.mutex("a"), two.mutex("a")];
    let with_one_between = [one.mutex("a"), one.mutex("b"), two.mutex("a")];
    for locks in [&both[..], &with_one_between] {
        let set = multi_lock(locks.iter().cloned());
        let refused = timeout(Duration::from_secs(9), set.acquire()).await;
        let error = refused.expect("it does not wait").expect_err("refused");
        assert!(error.is_invalid(), "{error}");

        let free = one.mutex("a").try_acquire().await.expect("it replies");
        assert!(free.is_ok(), "the first lock is released");
    }
}

/// Shows G-46.
#[tokio::test]
async fn stores_in_memory_with_one_url_are_two_stores() {
    let one = leasehold::open("memory:").await.expect("it opens");
    let two = leasehold::open("memory:").await.expect("it opens");
    // Only in one of the stores the next token is 2.
    let before = two.mutex("a").acquire().await.expect("granted");
    before.release().await.expect("released");

    for (locks, tokens) in [([&one, &two], [1, 2]), ([&two, &one], [3, 2])] {
        let set = multi_lock(locks.map(|locks| locks.mutex("a")));
        let guard = set.acquire().await.expect("granted");
        let granted: Vec<u64> = guard.tokens().into_iter().map(Token::get).collect();
        assert_eq!(granted, tokens, "in the order of the caller");
        guard.release().await.expect("released");
    }
}

/// Shows G-46.
#[tokio::test]
async fn lock_that_occurs_twice_is_refused() {
    let locks = leasehold::open("memory:").await.expect("it opens");

    let twice = locks.multi_lock(["a", "b", "a"]).acquire().await;
    assert!(twice.expect_err("refused").is_invalid());
    let none = locks.multi_lock([""; 0]).acquire().await;
    assert!(none.expect_err("refused").is_invalid());
}

/// Shows G-46.
#[tokio::test]
async fn hold_lost_while_waiting_is_acquired_again() {
    let locks = leasehold::open("memory:").await.expect("it opens");
    let held = locks.mutex("b").acquire().await.expect("granted");
    let set = locks.multi_lock(["b", "a"]);
    let waiting = tokio::spawn(async move { set.acquire().await });

    let token = loop {
        let lock_state = locks.inspect("a").await.expect("inspected");
        if let Some(token) = lock_state.holders().find_map(leasehold::Entry::token) {
            break token;
        }
        tokio::task::yield_now().await;
    };
    let broken = locks.break_hold("a", token).await.expect("it replies");
    assert!(broken.is_some());
    held.release().await.expect("released");

    let granted = timeout(Duration::from_secs(9), waiting).await;
    let guard = granted
        .expect("in time")
        .expect("no panic")
        .expect("granted");
    assert!(guard.check().is_ok());
    assert!(guard.tokens()[1] > token, "the lost lock has a new grant");
}

/// The store of the other lock sends no reply to the release.
///
/// Shows G-40, G-46.
#[tokio::test]
async fn release_reports_a_loss_before_a_missing_reply() {
    let silent = Intercepted(NoLeave(Memory::new()));
    let silent = Locks::from_store(silent, "memory:").expect("a URL");
    let locks = leasehold::open("memory:").await.expect("it opens");
    let unconfirmed = silent.mutex("a").lease(Duration::from_secs(1));
    let pair = vec![unconfirmed, locks.mutex("a")];
    let held = multi_lock(pair).acquire().await.expect("granted");
    let broken = locks.break_hold("a", held.tokens()[1]).await;
    assert!(broken.expect("it replies").is_some());
    let error = held.release().await.expect_err("both fail");
    assert!(error.is_lost(), "{error}");
}

/// A store whose clients get no reply when they leave.
#[derive(Debug)]
struct NoLeave(Memory);

#[async_trait]
impl Intercept for NoLeave {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.0.leave(claim).await?;
        Err(Error::unavailable("the reply is lost"))
    }
}

/// Shows G-46.
#[test]
fn blocking_set_is_granted_lost_and_released() {
    let locks = blocking::open("memory:").expect("it opens");
    let set = locks
        .multi_lock(["b", "a"])
        .configure(|lock| lock.max_hold(Duration::from_millis(300)));

    let guard = set.acquire().expect("granted");
    assert_eq!(guard.tokens().len(), 2);
    assert!(guard.check().is_ok());
    assert!(set.try_acquire().expect("it replies").is_err());
    let wait = Duration::from_millis(1);
    assert!(set.try_acquire_for(wait).expect("it replies").is_err());

    guard.lost_for(Duration::from_secs(9)).expect("lost");
    assert!(guard.release().expect_err("lost").is_lost());
}
