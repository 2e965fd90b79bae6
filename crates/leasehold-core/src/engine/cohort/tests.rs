//! Passes at the moments at which something else is under way.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::Cohort;
use super::waiting::LocalWait;
use crate::store::{Intercept, Intercepted};
use crate::{
    Claim, Entered, Error, Lock, LockState, Locks, Name, OnContention, RenewalStatus, Result,
    Store, stores,
};
use leasehold_conformance::support::{eventually, within_timeout};

/// A store whose replies to renewals and departures take longer than several passes.
#[derive(Debug, Default)]
struct SlowReplies {
    store: stores::Memory,
    enters: Arc<AtomicU32>,
    is_unreachable: Arc<AtomicBool>,
}

#[async_trait]
impl Intercept for SlowReplies {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.enters.fetch_add(1, Ordering::SeqCst);
        Store::enter(&self.store, claim, on_contention).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        tokio::time::sleep(REPLY_TIME).await;
        if self.is_unreachable.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the test has cut the connection"));
        }
        Store::renew(&self.store, claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        tokio::time::sleep(REPLY_TIME).await;
        Store::leave(&self.store, claim).await
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        if self.is_unreachable.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Store::inspect(&self.store, name).await
    }
}

/// A claim is passed on while its renewal is under way. The reply extends the hold that has the
/// claim then. Without this extension, the claim could not be passed on for longer than half a
/// lease. The same is true if each pass postponed the next renewal. A renewal that a busy machine
/// has delayed prevents one pass.
///
/// Shows G-53.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frequent_passes_do_not_postpone_renewals() {
    let store = SlowReplies::default();
    let enters = Arc::clone(&store.enters);
    let locks = Locks::from_store(Intercepted(store), "memory:").expect("it starts");
    let lock = locks.mutex("a").lease(LEASE).cohort(1_000);
    let passes = Arc::new(AtomicU32::new(0));

    let tasks = (0..3).map(|_| {
        let lock = lock.clone();
        let enters = Arc::clone(&enters);
        let passes = Arc::clone(&passes);
        tokio::spawn(async move { while hold(&lock, &passes, &enters).await < PASSES {} })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("all holds are passed on");
    }
}

const REPLY_TIME: Duration = Duration::from_millis(30);
const LEASE: Duration = Duration::from_secs(1);
/// So many passes last for at least five half leases.
const PASSES: u32 = 500;
const ENTERS_MAX: u32 = 3;

/// Holds until another acquire waits, and counts the pass.
async fn hold(lock: &Lock, passes: &AtomicU32, enters: &AtomicU32) -> u32 {
    let guard = lock.acquire().await.expect("the store replies");
    tokio::time::sleep(Duration::from_millis(5)).await;

    let number = passes.fetch_add(1, Ordering::SeqCst);
    // The last holds do not wait for another acquire.
    if number <= PASSES {
        let enters = enters.load(Ordering::SeqCst);
        assert!(enters <= ENTERS_MAX, "{enters} claims for {number} holds");
    }
    while number < PASSES && lock.locks().engine.local_waiters("a") == 0 {
        tokio::task::yield_now().await;
    }
    guard.release().await.expect("no hold is lost");
    number
}

/// The background goes on with the acquisition of the first acquire for the second one.
///
/// Shows G-10.
#[tokio::test]
async fn drain_waits_for_the_claim_of_a_cohort() {
    let store = SlowReplies::default();
    let theirs = Locks::from_store(store.store.clone(), "memory:").expect("it starts");
    let ours = Locks::from_store(Intercepted(store), "memory:").expect("it starts");
    let held = theirs.mutex("a").acquire().await.expect("granted");

    let lock = ours.mutex("a").cohort(4);
    let mut first = Box::pin(lock.acquire());
    let mut second = Box::pin(lock.acquire());
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    drop(second);

    crate::drain().await;
    let lock_state = theirs.inspect("a").await.expect("inspected");
    assert_eq!(lock_state.entries.len(), 1, "a claim is left");
    drop(held);
}

/// The claim in the queue is that of all acquires, and not that of the acquire that began it.
///
/// Shows G-53.
#[tokio::test]
async fn cancelled_acquire_leaves_its_place_in_the_queue_to_the_others() {
    let store = SlowReplies::default();
    let enters = Arc::clone(&store.enters);
    let theirs = Locks::from_store(store.store.clone(), "memory:").expect("it starts");
    let ours = Locks::from_store(Intercepted(store), "memory:").expect("it starts");
    let held = theirs.mutex("a").acquire().await.expect("granted");

    let lock = ours.mutex("a").cohort(4);
    let mut first = Box::pin(lock.acquire());
    let mut second = Box::pin(lock.acquire());
    let mut third = Box::pin(lock.acquire());
    for acquiring in [&mut first, &mut second, &mut third] {
        assert!(futures_util::poll!(acquiring).is_pending());
    }
    drop(third);
    let cohort = only_cohort(&ours);
    assert!(cohort.state.lock().departing.is_none(), "two still wait");

    let is_queued = || async {
        let lock_state = theirs.inspect("a").await.expect("a state");
        lock_state.waiters().count() == 1
    };
    eventually("the claim is queued", is_queued).await;
    drop(first);
    held.release().await.expect("released");
    let granted = within_timeout("it is granted", second).await;
    granted.expect("granted").release().await.expect("released");
    assert_eq!(enters.load(Ordering::SeqCst), 1);
}

/// The last hold that is passed on is not over when others begin to wait at the store.
///
/// Shows G-53.
#[tokio::test]
async fn next_claim_waits_in_the_queue_during_the_last_hold() {
    let store = SlowReplies::default();
    let enters = Arc::clone(&store.enters);
    let locks = Locks::from_store(Intercepted(store), "memory:").expect("it starts");
    let lock = locks.mutex("a").cohort(1);

    let first = lock.acquire().await.expect("it is free");
    let mut second = Box::pin(lock.acquire());
    assert!(futures_util::poll!(&mut second).is_pending());
    first.release().await.expect("passed on");
    let last = within_timeout("it is passed on", second).await;

    let mut third = Box::pin(lock.acquire());
    assert!(futures_util::poll!(&mut third).is_pending());
    let has_entered = || async { enters.load(Ordering::SeqCst) == 2 };
    eventually("the next claim enters", has_entered).await;
    last.expect("granted").release().await.expect("released");
    let granted = within_timeout("it is granted", third).await;
    granted.expect("granted").release().await.expect("released");
}

/// Shows G-53.
#[tokio::test]
async fn hold_whose_last_renewal_failed_is_not_passed_on() {
    let store = SlowReplies::default();
    let enters = Arc::clone(&store.enters);
    let is_unreachable = Arc::clone(&store.is_unreachable);
    let locks = Locks::from_store(Intercepted(store), "memory:").expect("it starts");
    let lease = LEASE * 4;
    let lock = locks.mutex("a").lease(lease).cohort(4);

    let first = lock.acquire().await.expect("it is free");
    let mut second = Box::pin(lock.acquire());
    assert!(futures_util::poll!(&mut second).is_pending());
    is_unreachable.store(true, Ordering::SeqCst);
    let is_late = || async { first.renewal() == RenewalStatus::Late };
    eventually("a renewal fails", is_late).await;
    assert!(first.remaining() > lease / 2, "the machine is too busy");
    first.release().await.expect("released");

    let granted = within_timeout("it is granted", second).await;
    assert_eq!(enters.load(Ordering::SeqCst), 2, "it was passed on");
    drop(granted);
}

/// A hold of this process shows that the lock is held, whether or not the store says by whom.
///
/// Shows G-26.
#[tokio::test]
async fn acquire_is_refused_by_a_hold_of_this_process_without_a_reply() {
    let store = SlowReplies::default();
    let is_unreachable = Arc::clone(&store.is_unreachable);
    let locks = Locks::from_store(Intercepted(store), "memory:").expect("it starts");

    for (lock, limit) in [
        (locks.mutex("a").cohort(4), Duration::ZERO),
        (locks.mutex("b"), REPLY_TIME),
    ] {
        let held = lock.acquire().await.expect("it is free");
        is_unreachable.store(true, Ordering::SeqCst);
        let tried = lock.try_acquire_for(limit).await;
        let refused = tried.expect("a hold has refused it");
        drop(refused.expect_err("it is held"));
        is_unreachable.store(false, Ordering::SeqCst);
        held.release().await.expect("released");
    }
}

fn only_cohort(locks: &Locks) -> Arc<Cohort> {
    let cohorts = locks.engine.cohorts.by_key.lock();
    let cohort = cohorts.values().next().and_then(Weak::upgrade);
    cohort.expect("an acquire or a hold uses it")
}

/// The process was stopped between the pass of a hold and its use.
///
/// Shows G-54.
#[tokio::test]
async fn acquire_with_a_lost_hold_waits_again_in_its_position() {
    let locks = Locks::from_store(stores::Memory::new(), "memory:").expect("it starts");
    let guard = locks.mutex("a").cohort(2).acquire().await.expect("granted");
    let cohort = only_cohort(&locks);

    let (_first, ahead) = LocalWait::join(&cohort, None);
    assert_eq!(ahead, 1, "the holder");
    let (mut second, _) = LocalWait::join(&cohort, None);
    let (_third, ahead) = LocalWait::join(&cohort, None);
    assert_eq!(ahead, 3, "the holder and two waiters");
    drop(cohort.state.lock().waiters.remove(1));
    second.rejoin();
    let numbers: Vec<u64> = cohort
        .state
        .lock()
        .waiters
        .iter()
        .map(|waiter| waiter.number)
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    drop(guard);
}

/// A name that no acquire and no hold uses occupies no memory.
///
/// Shows G-53.
#[tokio::test]
async fn cohort_ends_with_its_last_hold() {
    let locks = Locks::from_store(stores::Memory::new(), "memory:").expect("it starts");
    let first = locks.mutex("a").cohort(2).acquire().await;
    let second = locks.mutex("b").cohort(2).acquire().await;
    let cohorts = &locks.engine.cohorts;
    assert_eq!(cohorts.len(), 2);

    drop(first);
    eventually("the first cohort ends", || async { cohorts.len() == 1 }).await;
    second.expect("it is free").release().await.expect("held");
    eventually("both cohorts end", || async { cohorts.len() == 0 }).await;
}

/// Shows G-53.
#[tokio::test]
async fn invalid_cohorts_are_refused() {
    let locks = Locks::from_store(stores::Memory::new(), "memory:").expect("it starts");
    let invalid = [
        locks.mutex("a").cohort(0),
        locks.mutex("a").cohort(1_001),
        locks.mutex("a").no_renewal().cohort(4),
        locks.semaphore("a", 2).cohort(4),
        locks.rwlock("a").exclusive().cohort(4),
    ];
    for lock in invalid {
        let error = lock.acquire().await.expect_err("invalid");
        assert!(error.is_invalid(), "{error}");
    }
}
