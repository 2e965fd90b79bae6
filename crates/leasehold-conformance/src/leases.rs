//! Leases: renewed, fixed, bounded, broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::shares::clients_with_readers;
use super::support::{
    PUSHED_LEASE, TIMEOUT, acquire, break_held, claim, client, empty, enter, fresh_name, granted,
    locks_over, release, store, try_acquire, waiters, within_timeout,
};
use super::{LockKind, Service};
use leasehold_core::store::{Claim, Intercept, Intercepted, OnContention, Share, Store};
use leasehold_core::{Lock, LossReason, Result, SemaphoreSupport, Watch};

/// A lease whose end a test waits for.
const SHORT: Duration = Duration::from_millis(600);
/// How late a busy server may execute a request. A majority of servers may have granted the claim
/// before, and the lease on this server ends later.
const LATE: Duration = Duration::from_secs(1);

/// A lease that a busy machine can still renew in time.
const RENEWED: Duration = Duration::from_secs(2);

/// A lock is held far beyond its lease while its guard exists.
///
/// Shows G-13.
pub async fn hold_is_renewed_beyond_the_lease(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("renewed");
    let ours = client(service).await;
    let theirs = client(service).await;
    let lock = kind.lock(&ours, &name).with(|lock| lock.lease(RENEWED));
    let others = kind.lock(&theirs, &name);

    let held = lock.acquire().await.expect("granted");
    let refused = others.try_acquire_for(RENEWED * 5 / 2).await;
    assert!(refused.expect("the store replies").is_err());

    held.check().expect("still held");
    held.release().await.expect("released");
}

/// A fixed lease ends at its time. The guard ends with it, before the next client holds the lock.
/// A late release does not free the lock of the next client. In distributed-lock-rs it does,
/// because a lock object has one id for all its holds.
///
/// Shows G-03, G-14.
pub async fn fixed_lease_expires(service: &dyn Service, kind: LockKind) {
    let fixed = |lock: Lock| lock.lease(SHORT).no_renewal();
    ends(service, kind, fixed, LossReason::LeaseExpired).await;
}

/// The leases of a holder and of a waiter are over, as after a crash of both. The name may then be
/// used for another kind of lock.
///
/// Shows G-06, G-15.
pub async fn ended_leases_do_not_keep_the_kind(service: &dyn Service) {
    let store = store(service).await;
    let guarantees = store.guarantees();
    if !guarantees.lease_expiry || guarantees.semaphore != SemaphoreSupport::WhileInUse {
        return;
    }
    let name = fresh_name("ended");
    for _ in 0..2 {
        let mut crashed = claim(&name);
        crashed.lease = SHORT;
        enter(&*store, &crashed, OnContention::Queue).await;
    }
    tokio::time::sleep(SHORT + LATE).await;

    let mut slots = claim(&name);
    slots.share = Share::slots(2, 3).expect("at most 3 permits");
    let standing = enter(&*store, &slots, OnContention::Queue).await;
    assert!(standing.token().is_some(), "{standing:?}");
}

/// `max_hold` ends a hold, whether it is renewed or its lease is longer.
///
/// Shows G-14.
pub async fn max_hold_ends_the_hold(service: &dyn Service, kind: LockKind) {
    let renewed = |lock: Lock| lock.lease(SHORT * 10).max_hold(SHORT);
    ends(service, kind, renewed, LossReason::MaxHoldExceeded).await;
    let fixed = |lock: Lock| renewed(lock).no_renewal();
    ends(service, kind, fixed, LossReason::MaxHoldExceeded).await;
}

async fn ends(
    service: &dyn Service,
    kind: LockKind,
    limited: impl Fn(Lock) -> Lock,
    reason: LossReason,
) {
    let name = fresh_name("ends");
    let ours = client(service).await;
    let theirs = client(service).await;
    let sent_at = Instant::now();
    let lock = kind.lock(&ours, &name).with(limited);
    let held = lock.acquire().await.expect("granted");
    assert!(held.remaining() <= SHORT);

    let lost = within_timeout("the holder is notified", held.lost()).await;
    assert_eq!(lost, reason);
    assert!(sent_at.elapsed() >= SHORT / 2, "the hold ended too early");
    assert!(held.check().expect_err("it has ended").is_lost());

    let their_lock = kind.lock(&theirs, &name);
    let next = within_timeout("the next client is granted", their_lock.acquire())
        .await
        .expect("granted");
    assert!(held.release().await.expect_err("lost").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
}

/// The store notifies a holder that its lock was broken. Work under the guard is stopped, and the
/// next client is granted the lock.
///
/// The lease is so long that no renewal is due while the suite waits, so the notification came from
/// the store and not from a renewal.
///
/// Shows G-12, L7.
pub async fn broken_hold_is_reported_lost(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("broken");
    let ours = client(service).await;
    let theirs = client(service).await;
    let lock = kind
        .lock(&ours, &name)
        .with(|lock| lock.lease(PUSHED_LEASE));
    let held = lock.acquire().await.expect("granted");

    let other = leasehold_core::Token::new(held.token().get() + 1).expect("above zero");
    let broken = theirs.break_hold(&name, other).await;
    assert_eq!(broken.expect("the store replies"), None);
    held.check().expect("another token does not break the hold");

    let broken = tokio::time::timeout(TIMEOUT, async {
        let work = held.while_held(std::future::pending::<()>());
        let breaking = theirs.break_hold(&name, held.token());
        futures_util::future::join(work, breaking).await
    });
    let (work, breaking) = broken.await.expect("the store notifies the holder");
    assert!(work.expect_err("stopped").is_lost());
    assert!(breaking.expect("the store replies").is_some());
    assert_eq!(held.loss(), Some(LossReason::Revoked));

    drop(held);
    let their_lock = kind.lock(&theirs, &name);
    let next = within_timeout("the next client is granted", their_lock.acquire())
        .await
        .expect("granted");
    next.release().await.expect("released");
}

/// A hold that its own client breaks ends before the next claim is granted.
///
/// Shows G-12.
pub async fn hold_broken_by_own_client_is_lost(service: &dyn Service, kind: LockKind) {
    let locks = client(service).await;
    let name = fresh_name("own");
    let lock = kind.lock(&locks, &name);

    let held = lock.acquire().await.expect("granted");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&locks, &name, 1).await;
    break_held(&locks, &name, held.token()).await;

    let next = granted(waiting).await;
    assert!(held.check().expect_err("two hold at once").is_lost());
    let reason = within_timeout("the holder is notified", held.lost()).await;
    assert_eq!(reason, LossReason::Revoked);

    assert!(held.release().await.expect_err("broken").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
}

/// A hold that its own client breaks has ended for its guard when the request to leave is sent.
///
/// Shows S8.
pub async fn own_break_ends_the_hold_before_its_request(service: &dyn Service) {
    let name = fresh_name("own-break");
    let leaving = Arc::new(Leaving::default());
    let intercepted = Intercepted(WatchedLeave {
        store: store(service).await,
        leaving: Arc::clone(&leaving),
    });
    let locks = locks_over(Arc::new(intercepted));
    let held = acquire(&locks.mutex(&name)).await;
    *leaving.watch.lock() = Some(held.watch());

    break_held(&locks, &name, held.token()).await;
    assert!(!leaving.was_valid.load(Ordering::SeqCst));
}

/// What a hold was when its client sent the request to leave.
#[derive(Debug, Default)]
struct Leaving {
    watch: Mutex<Option<Watch>>,
    was_valid: AtomicBool,
}

#[derive(Debug)]
struct WatchedLeave {
    store: Arc<dyn Store>,
    leaving: Arc<Leaving>,
}

#[async_trait]
impl Intercept for WatchedLeave {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let is_valid = |watch: &Watch| watch.check().is_ok();
        if self.leaving.watch.lock().as_ref().is_some_and(is_valid) {
            self.leaving.was_valid.store(true, Ordering::SeqCst);
        }
        self.store.leave(claim).await
    }
}

/// A claim that is not renewed ends with its lease, a renewal after that changes nothing, and the
/// next claim is granted. A repeated enter starts the lease again.
///
/// A store without lease expiry keeps the claim beyond its lease.
///
/// Shows G-03, G-15.
pub async fn unrenewed_claim_expires(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("silent");
    let silent = store(service).await;
    let locks = client(service).await;
    let short_claim = || {
        let mut claim = claim(&name);
        claim.share = kind.share();
        claim.lease = SHORT;
        claim
    };
    let holder = short_claim();
    if !silent.guarantees().lease_expiry {
        return unrenewed_claim_is_kept(&*silent, &holder).await;
    }

    let mut long = claim(&fresh_name("long"));
    long.share = kind.share();
    enter(&*silent, &long, OnContention::Queue).await;
    let waiter = short_claim();
    let held = enter(&*silent, &holder, OnContention::Queue).await;
    assert!(held.token().is_some());
    enter(&*silent, &waiter, OnContention::Queue).await;
    // One request renews claims with unlike leases. A busy server may not reply in time.
    let _ = silent.renew(&[holder.clone(), long.clone()]).await;
    tokio::time::sleep(SHORT / 2).await;
    let repeated_at = Instant::now();
    enter(&*silent, &holder, OnContention::Queue).await;
    let both_expired = Instant::now() + SHORT + LATE;

    let lock = kind.lock(&locks, &name);
    tokio::time::sleep_until(repeated_at + SHORT * 3 / 4).await;
    if let Ok(early) = lock.try_acquire().await.expect("the store replies") {
        let lasted = repeated_at.elapsed();
        assert!(lasted >= SHORT * 9 / 10, "the lease ended after {lasted:?}");
        early.release().await.expect("released");
    }
    let acquire_next = within_timeout("the lease ends", lock.acquire());
    let claims = [holder.clone(), waiter, long.clone()];
    // Without a queue, a store may acquire a free lock again for a claim that is renewed.
    let next = if silent.guarantees().fifo {
        renew_expired(&*silent, &claims, both_expired).await;
        acquire_next.await
    } else {
        let next = acquire_next.await;
        // The waiter did not delay the grant.
        renew_expired(&*silent, &claims, both_expired).await;
        next
    };
    let next = next.expect("granted");
    let left = silent.leave(&holder).await.expect("the store replies");
    assert!(!left, "the expired claim still has an entry");
    assert!(silent.leave(&long).await.expect("the store replies"));

    let token = held.token().expect("granted");
    let lost = within_timeout("the claim is gone", silent.lost(&holder, token)).await;
    lost.expect("the store replies");
    next.release().await.expect("released");
    empty(&locks, &name).await;
}

/// Renews two claims whose leases have ended, and one whose lease has not.
async fn renew_expired(store: &dyn Store, claims: &[Claim; 3], expired: Instant) {
    tokio::time::sleep_until(expired).await;
    let renewing = async {
        loop {
            match store.renew(claims).await {
                // The short lease bounds the wait for the reply, and a busy server needs longer.
                Err(error) if error.is_unavailable() => {}
                renewed => break renewed,
            }
        }
    };
    let renewed = within_timeout("a reply in time", renewing).await;
    let renewed = renewed.expect("the store replies");
    assert_eq!(renewed[..2], [None, None]);
    assert!(renewed[2].is_some(), "the lease of another claim counts");
}

async fn unrenewed_claim_is_kept(store: &dyn Store, holder: &Claim) {
    let held = enter(store, holder, OnContention::Queue).await;
    assert!(held.token().is_some());

    tokio::time::sleep(2 * SHORT).await;
    let renewed = store
        .renew(std::slice::from_ref(holder))
        .await
        .expect("the store replies");
    assert!(renewed[0].is_some(), "the claim ended with its lease");
    assert!(store.leave(holder).await.expect("the store replies"));
}

/// The lease of a reader ends no hold of another reader, which excludes writers until its own lease
/// ends.
///
/// Shows G-55.
pub async fn reader_with_a_short_lease_does_not_shorten_anothers(service: &dyn Service) {
    let Some((ours, theirs)) = clients_with_readers(service).await else {
        return;
    };
    let name = fresh_name("unlike");
    let long_lock = ours.rwlock(&name).shared().lease(PUSHED_LEASE);
    let long = acquire(&long_lock).await;

    let store = store(service).await;
    let mut short = claim(&name);
    short.share = Share::READER;
    short.lease = SHORT;
    let reading = enter(&*store, &short, OnContention::Queue).await;
    assert!(reading.token().is_some());
    let renewed = store.renew(std::slice::from_ref(&short)).await;
    assert!(renewed.expect("the store replies")[0].is_some());

    tokio::time::sleep(2 * SHORT).await;
    let writer = theirs.rwlock(&name).exclusive();
    assert!(try_acquire(&writer).await.is_none(), "a reader holds");
    long.check().expect("the reader holds");
    release(long).await;
    store.leave(&short).await.expect("the store replies");
    release(acquire(&writer).await).await;
}
