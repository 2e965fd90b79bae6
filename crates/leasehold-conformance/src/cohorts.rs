//! Cohorts: a released hold is passed to the next acquire of the same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};

use super::Service;
use super::faulty_client::FaultyClient;
use super::support::{
    acquire, all_end, break_held, claim, client, empty, enter, eventually, fresh_name, granted,
    release, spawn_acquire, store, waiters, within_timeout,
};
use leasehold_core::store::OnContention;
use leasehold_core::{Guard, Lock, LossReason, Result, Token, blocking};

/// A released hold is passed on without a request, as often as the cohort permits. Each hold has a
/// larger token than the one before, and the guard before is invalid. An acquire with another
/// maximum does not belong to the cohort.
///
/// Shows G-53, G-54.
pub async fn cohort_passes_hold_without_request(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 3).await else {
        return;
    };
    let mut guard = acquire(&cohort.lock).await;
    let enters = cohort.enters();

    for _ in 0..3 {
        let next = cohort.waiter().await;
        let token = guard.token();
        release(guard).await;
        guard = granted(next).await;
        assert_eq!(guard.token().get(), token.get() + 1, "tokens of one block");
        assert!(guard.check().is_ok());
    }
    assert_eq!(cohort.enters(), enters, "a pass sent a request");

    let last = guard.token();
    let next = cohort.waiter().await;
    release(guard).await;
    let guard = granted(next).await;
    assert_eq!(cohort.enters(), enters + 1, "a fourth pass");
    assert!(guard.token() > last, "tokens of two blocks");

    let other = spawn_acquire(&cohort.lock.clone().cohort(1));
    eventually("it enters with a claim of its own", || async {
        cohort.enters() == enters + 2
    })
    .await;
    release(guard).await;
    release(granted(other).await).await;
    empty(&cohort.client.locks, &cohort.name).await;
}

/// The tokens of all processes rise from grant to grant, whether a hold was passed on or not.
///
/// Shows G-53.
pub async fn cohort_tokens_rise_across_processes(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 4).await else {
        return;
    };
    let other = client(service).await;
    let last = Arc::new(AtomicU64::new(0));

    let mut tasks = JoinSet::new();
    for at in 0..8 {
        let mutex = match at {
            0 | 1 => other.mutex(&cohort.name),
            2 | 3 => other.mutex(&cohort.name).cohort(2),
            _ => cohort.lock.clone(),
        };
        let last = Arc::clone(&last);
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = mutex.acquire().await.expect("granted");
                let before = last.swap(guard.token().get(), Ordering::SeqCst);
                assert!(before < guard.token().get(), "{before} {}", guard.token());
                tokio::task::yield_now().await;
                guard.release().await.expect("it was held");
            }
        });
    }
    all_end(tasks).await;
    empty(&other, &cohort.name).await;
}

/// A grant reserves tokens in the step in which it grants: to a claim that finds the lock free, and
/// to a waiter, whatever the holder before it had reserved.
///
/// Shows G-53.
pub async fn grant_reserves_tokens(service: &dyn Service) {
    // More than the microseconds between two grants, where tokens follow a clock.
    const RESERVED: u32 = 60_000;
    let store = store(service).await;
    if !store.guarantees().cohorts {
        return;
    }
    let name = fresh_name("reserved");
    let reserving = |reserved| {
        let mut claim = claim(&name);
        claim.reserved = reserved;
        claim
    };

    let mut last = 0;
    let mut holder = reserving(RESERVED);
    let mut standing = enter(&*store, &holder, OnContention::Queue).await;
    for next in [RESERVED, RESERVED, 0, RESERVED] {
        let token = standing.token().expect("granted").get();
        let first = token - u64::from(holder.reserved);
        assert!(last < first, "{first} follows {last}");
        let lock_state = store.inspect(&holder.name).await.expect("inspected");
        let entry = lock_state.holders().next().expect("a holder");
        assert_eq!(entry.reserved, holder.reserved);
        last = token;

        let waiter = reserving(next);
        enter(&*store, &waiter, OnContention::Queue).await;
        assert!(store.leave(&holder).await.expect("left"));
        let changed = within_timeout("the grant", store.queued(&waiter, 1)).await;
        standing = changed.expect("the store replies");
        holder = waiter;
    }
    let token = standing.token().expect("granted").get();
    assert!(last < token - u64::from(RESERVED), "{token} follows {last}");
    store.leave(&holder).await.expect("left");

    let again = reserving(RESERVED);
    let entered = enter(&*store, &again, OnContention::Queue).await;
    let first = entered.token().expect("granted").get() - u64::from(RESERVED);
    assert!(token < first, "{first} follows {token}");
    store.leave(&again).await.expect("left");
}

/// At most `max` acquires of a cohort overtake a waiter of another process.
///
/// Shows G-54.
pub async fn cohort_overtakes_remote_waiter_at_most_max_times(service: &dyn Service) {
    const MAX: u32 = 3;
    let Some(cohort) = CohortClient::new(service, MAX).await else {
        return;
    };
    let other = client(service).await;
    let mut guard = acquire(&cohort.lock).await;
    let remote = spawn_acquire(&other.mutex(&cohort.name));
    waiters(&other, &cohort.name, 1).await;

    let mut local = Vec::new();
    for _ in 0..MAX + 2 {
        local.push(cohort.waiter().await);
    }
    for next in local.drain(..MAX as usize) {
        assert!(!remote.is_finished());
        release(guard).await;
        guard = granted(next).await;
    }

    release(guard).await;
    let remote = granted(remote).await;
    assert!(local.iter().all(|next| !next.is_finished()), "overtook");
    release(remote).await;
    for next in local {
        release(granted(next).await).await;
    }
    empty(&other, &cohort.name).await;
}

/// A lost hold is not passed on: the next acquire enters the queue with a claim of its own.
///
/// Shows G-53.
pub async fn cohort_passes_no_lost_hold(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 8).await else {
        return;
    };
    let first = acquire(&cohort.lock).await;
    let second = cohort.waiter().await;
    release(first).await;
    let second = granted(second).await;
    let third = cohort.waiter().await;
    let enters = cohort.enters();

    let other = client(service).await;
    let remote = spawn_acquire(&other.mutex(&cohort.name));
    waiters(&other, &cohort.name, 1).await;

    // Another process breaks the claim by the token of the second hold.
    break_held(&other, &cohort.name, second.token()).await;
    let reason = within_timeout("the loss is noticed", second.lost()).await;
    assert_eq!(reason, LossReason::Revoked);

    // The next acquire enters while the guard still exists.
    eventually("the next acquire enters", || async {
        cohort.enters() > enters
    })
    .await;
    let token = second.token();
    assert!(second.release().await.expect_err("it was lost").is_lost());
    let remote = granted(remote).await;
    assert!(remote.token() > token);
    assert!(!third.is_finished(), "it got the lost hold");

    let token = remote.token();
    release(remote).await;
    let third = granted(third).await;
    assert!(third.token() > token);
    assert_eq!(cohort.enters(), enters + 1);
    release(third).await;
    empty(&cohort.client.locks, &cohort.name).await;
}

/// Each hold has its own `max_hold`, which does not shorten the next hold.
///
/// Shows G-53.
pub async fn cohort_holds_have_limits_of_their_own(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 8).await else {
        return;
    };
    let short = cohort.lock.clone().max_hold(Duration::from_millis(500));
    let first = acquire(&short).await;
    let second = cohort.waiter().await;
    release(first).await;
    let second = granted(second).await;
    assert!(
        second.remaining() > Duration::from_secs(1),
        "a limit is inherited"
    );

    let third = cohort.waiter_of(&short).await;
    let fourth = cohort.waiter().await;
    release(second).await;
    let third = granted(third).await;
    let reason = within_timeout("the limit ends it", third.lost()).await;
    assert_eq!(reason, LossReason::MaxHoldExceeded);
    let fourth = granted(fourth).await;
    assert!(fourth.token() > third.token());
    release(fourth).await;
    drop(third);
    empty(&cohort.client.locks, &cohort.name).await;
}

/// A dropped acquire of a cohort leaves nothing behind: no entry, no hold, and no acquire that
/// waits for it.
///
/// Shows G-53.
pub async fn cancelled_acquire_of_cohort_leaves_nothing(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 8).await else {
        return;
    };
    let other = client(service).await;
    let held = acquire(&other.mutex(&cohort.name)).await;

    // The acquire that has begun the acquisition is dropped, then the last one.
    let first = spawn_acquire(&cohort.lock);
    waiters(&other, &cohort.name, 1).await;
    let second = spawn_acquire(&cohort.lock);
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    tokio::task::yield_now().await;
    waiters(&other, &cohort.name, 1).await;
    second.abort();
    waiters(&other, &cohort.name, 0).await;
    release(held).await;

    // An acquire is dropped before, while, and after the hold is passed to it.
    for polls in 0..40 {
        let held = acquire(&cohort.lock).await;
        let mut dropped = Box::pin(cohort.lock.acquire());
        let polled = futures_util::poll!(&mut dropped);
        assert!(polled.is_pending(), "two hold");
        let next = cohort.waiter().await;
        release(held).await;
        for _ in 0..polls % 4 {
            tokio::task::yield_now().await;
        }
        drop(dropped);
        release(granted(next).await).await;
    }
    empty(&other, &cohort.name).await;
}

/// An acquire that joins while a request of its cohort has no reply does not fail with that request.
///
/// Shows G-53.
pub async fn failed_acquire_of_cohort_fails_no_later_one(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 8).await else {
        return;
    };
    let enters = cohort.enters();
    cohort.client.faults.refuse(ENTERS_MAX);
    let first = spawn_acquire(&cohort.lock);
    eventually("the first one enters", || async {
        cohort.enters() > enters
    })
    .await;
    let second = spawn_acquire(&cohort.lock);

    let failed = within_timeout("the first one fails", first).await;
    let error = failed.expect("the task ran").expect_err("it has no reply");
    assert!(error.is_unavailable(), "{error}");
    release(granted(second).await).await;
    empty(&cohort.client.locks, &cohort.name).await;
}

/// An acquire that may not wait does not join the others. One with a time limit leaves them.
///
/// Shows G-53.
pub async fn cohort_keeps_wait_limits(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 8).await else {
        return;
    };
    let guard = acquire(&cohort.lock).await;
    let refused = within_timeout("refused", cohort.lock.try_acquire()).await;
    assert!(refused.expect("the store replies").is_err());
    let brief = cohort.lock.try_acquire_for(Duration::from_millis(50));
    let refused = within_timeout("the limit passes", brief).await;
    assert!(refused.expect("the store replies").is_err());

    release(guard).await;
    let guard = cohort.lock.try_acquire().await.expect("the store replies");
    let next = cohort.waiter().await;
    release(guard.expect("it is free")).await;
    release(granted(next).await).await;
    empty(&cohort.client.locks, &cohort.name).await;
}

/// Threads of the blocking API share a cohort with each other and with async code.
///
/// Shows G-53.
pub async fn blocking_acquires_share_a_cohort(service: &dyn Service) {
    let Some(cohort) = CohortClient::new(service, 1_000).await else {
        return;
    };
    let blocking = blocking::Locks::from(cohort.client.locks.clone());
    let mutex = blocking.mutex(&cohort.name).cohort(1_000);
    let guard = acquire(&cohort.lock).await;
    let enters = cohort.enters();

    let threads = (0..4).map(|_| {
        let mutex = mutex.clone();
        tokio::task::spawn_blocking(move || {
            let mut tokens: Vec<Token> = Vec::new();
            for _ in 0..10 {
                let guard = mutex.acquire().expect("granted");
                tokens.push(guard.token());
                guard.release().expect("it was held");
            }
            tokens
        })
    });
    let threads: Vec<_> = threads.collect();
    cohort.waits(4).await;
    release(guard).await;

    let mut tokens = Vec::new();
    for thread in threads {
        tokens.extend(
            within_timeout("all are granted", thread)
                .await
                .expect("runs"),
        );
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 40, "a token was used twice");
    assert!(cohort.enters() - enters < 40, "nothing was passed on");
    empty(&cohort.client.locks, &cohort.name).await;
}

/// How often an acquire sends its first request to enter before it fails.
const ENTERS_MAX: u32 = 3;

/// One process with a cohort, and the requests that it sends.
struct CohortClient {
    client: FaultyClient,
    name: String,
    lock: Lock,
}

impl CohortClient {
    /// Returns `None` if the store has no cohorts, after a check that it refuses them.
    async fn new(service: &dyn Service, max: u32) -> Option<Self> {
        let client = FaultyClient::connect(service).await;
        let name = fresh_name("cohort");
        let lock = client.locks.mutex(&name).cohort(max);

        if !client.locks.guarantees().cohorts {
            let error = lock.acquire().await.expect_err("cohorts are refused");
            assert!(error.is_unsupported(), "{error}");
            assert!(error.to_string().contains("without a cohort"), "{error}");
            return None;
        }
        Some(Self { client, name, lock })
    }

    fn enters(&self) -> u32 {
        self.client.faults.enters()
    }

    /// Starts an acquire that waits behind a hold of the cohort.
    async fn waiter(&self) -> JoinHandle<Result<Guard>> {
        self.waiter_of(&self.lock).await
    }

    async fn waiter_of(&self, lock: &Lock) -> JoinHandle<Result<Guard>> {
        let before = self.waiting();
        let waiter = spawn_acquire(lock);
        self.waits(before + 1).await;
        waiter
    }

    /// Waits until this number of acquires wait in the process.
    async fn waits(&self, count: usize) {
        eventually("the acquires wait", || async { self.waiting() == count }).await;
    }

    fn waiting(&self) -> usize {
        self.client.locks.local_waiters(&self.name)
    }
}
