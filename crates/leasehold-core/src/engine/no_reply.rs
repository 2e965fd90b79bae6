//! Tests of acquires whose store does not reply in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::store::{Intercept, Intercepted};
use crate::stores::Memory;
use crate::{Claim, Entered, Error, Locks, Name, OnContention, Result, Store};
use leasehold_conformance::support::within_timeout;

/// A wait that ends long before a store counts as unavailable.
const BRIEF: Duration = Duration::from_millis(10);

/// How long a store without replies takes to report that: longer than all waits of these tests. It
/// must not be silent forever, because `drain` waits for the departures of all tests.
const SILENCE: Duration = Duration::from_secs(3);

/// A store whose replies to requests to enter come late or never.
#[derive(Debug)]
struct HeldBack {
    store: Memory,
    pace: Pace,
    requests: Arc<Semaphore>,
}

#[derive(Debug)]
enum Pace {
    Never,
    After(Duration),
    /// The first request has a reply, and the others fail.
    Once(AtomicBool),
}

#[async_trait]
impl Intercept for HeldBack {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.requests.add_permits(1);
        match self.pace {
            Pace::Never => {
                sleep(SILENCE).await;
                Err(Error::unavailable("the store sends no reply"))
            }
            Pace::After(pause) => {
                let reply = self.store.enter(claim, on_contention).await;
                sleep(pause).await;
                reply
            }
            Pace::Once(ref has_replied) => {
                if has_replied.swap(true, Ordering::SeqCst) {
                    return Err(Error::unavailable("the store sends no reply"));
                }
                self.store.enter(claim, on_contention).await
            }
        }
    }
}

/// Opens a store, and returns what counts its requests to enter.
fn held_back(store: &Memory, pace: Pace) -> (Locks, Arc<Semaphore>) {
    let requests = Arc::new(Semaphore::new(0));
    let store = Intercepted(HeldBack {
        store: store.clone(),
        pace,
        requests: Arc::clone(&requests),
    });
    let locks = Locks::from_store(store, "memory:").expect("the background thread runs");
    (locks, requests)
}

/// Shows G-26.
#[tokio::test]
async fn brief_wait_without_reply_is_unavailable() {
    let (locks, _) = held_back(&Memory::new(), Pace::Never);

    for lock in [locks.mutex("a"), locks.mutex("b").cohort(4)] {
        let tried = within_timeout("the wait ends", lock.try_acquire_for(BRIEF)).await;
        let error = tried.expect_err("no reply has refused it");
        assert!(error.is_unavailable(), "{error}");
    }
}

/// The first acquire of a cohort has no reply yet. So the next one does not know whether the lock
/// is free.
///
/// Shows G-26.
#[tokio::test]
async fn acquire_of_cohort_without_reply_refuses_no_other() {
    let (locks, requests) = held_back(&Memory::new(), Pace::Never);
    let lock = locks.mutex("a").cohort(4);
    let same = lock.clone();
    let first = tokio::spawn(async move { same.acquire().await.map(drop) });
    requests.acquire().await.expect("it is open").forget();

    let tried = within_timeout("the wait ends", lock.try_acquire_for(BRIEF)).await;
    let error = tried.expect_err("no reply has refused it");
    assert!(error.is_unavailable(), "{error}");
    let tried = timeout(BRIEF, lock.try_acquire()).await;
    assert!(tried.is_err(), "it ended without a reply: {tried:?}");
    first.abort();
}

/// The reply of a slow store decides, even if it arrives after the deadline.
///
/// Shows G-26.
#[tokio::test]
async fn slow_reply_decides_a_brief_wait() {
    let memory = Memory::new();
    let (locks, _) = held_back(&memory, Pace::After(BRIEF * 5));
    let others = Locks::from_store(memory, "memory:").expect("the background thread runs");
    let held = others.mutex("held").acquire().await;

    for lock in [locks.mutex("held"), locks.mutex("held").cohort(4)] {
        let refused = lock.try_acquire_for(BRIEF).await;
        assert!(refused.expect("it replies").is_err(), "two hold");
    }
    for lock in [locks.mutex("a"), locks.mutex("b").cohort(4)] {
        let granted = lock.try_acquire_for(BRIEF).await;
        drop(granted.expect("it replies").expect("it is free"));
    }
    drop(held);
}

/// The claim left the queue without a request of its own, and has to enter again.
///
/// Shows G-26.
#[tokio::test]
async fn second_request_without_reply_until_the_deadline_is_unavailable() {
    let memory = Memory::new();
    let (locks, _) = held_back(&memory, Pace::Once(AtomicBool::new(false)));
    let others = Locks::from_store(memory.clone(), "memory:").expect("the background thread runs");
    let _held = others.mutex("a").acquire().await.expect("granted");
    let lock = locks.mutex("a");
    let trying = tokio::spawn(async move { lock.try_acquire_for(BRIEF * 50).await.map(drop) });

    let waiter = loop {
        let lock_state = others.inspect("a").await.expect("inspected");
        if let Some(waiter) = lock_state.waiters().next() {
            break waiter.clone();
        }
        tokio::task::yield_now().await;
    };
    let claim = Claim::of_entry(Name::parse("a").expect("a good name"), &waiter);
    assert!(memory.leave(&claim).await.expect("it has left"));

    let tried = within_timeout("the wait ends", trying).await;
    let error = tried.expect("it ran").expect_err("no reply has refused it");
    assert!(error.is_unavailable(), "{error}");
}
