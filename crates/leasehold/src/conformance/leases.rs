//! Leases: renewed, fixed, bounded, broken.

use std::time::{Duration, Instant};

use super::support::{TIMEOUT, client, empty, fresh_name, store, waiters, within_timeout};
use super::{LockKind, Service};
use crate::{Claim, ClaimId, ClaimantInfo, LossReason, Name, OnContention, Standing};

const SHORT: Duration = Duration::from_millis(300);
/// One that is to be renewed in time on a machine that has much else to do.
const RENEWED: Duration = Duration::from_secs(1);

/// A lock is held far beyond its lease as long as its guard lives.
pub async fn hold_is_renewed_beyond_the_lease(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("renewed");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = kind
        .lock(&ours, &name)
        .with(|lock| lock.lease(RENEWED))
        .acquire()
        .await
        .expect("granted");
    let others = kind.lock(&theirs, &name);
    assert!(
        others
            .try_acquire_for(RENEWED * 5 / 2)
            .await
            .expect("asked")
            .is_none()
    );
    held.check().expect("still held");
    held.release().await.expect("released");
}

/// A fixed lease is over when its time is, and the guard with it, before the next can hold.
pub async fn fixed_lease_expires(service: &dyn Service, kind: LockKind) {
    ends(service, kind, LossReason::LeaseExpired).await;
}

/// `max_hold` ends a hold that is being renewed.
pub async fn max_hold_ends_the_hold(service: &dyn Service, kind: LockKind) {
    ends(service, kind, LossReason::MaxHoldExceeded).await;
}

async fn ends(service: &dyn Service, kind: LockKind, by: LossReason) {
    let name = fresh_name("ends");
    let (ours, theirs) = (client(service).await, client(service).await);
    let sent_at = Instant::now();
    let lock = kind.lock(&ours, &name).with(|lock| match by {
        LossReason::LeaseExpired => lock.lease(SHORT).no_renewal(),
        _ => lock.lease(SHORT * 10).max_hold(SHORT),
    });
    let held = lock.acquire().await.expect("granted");
    assert!(held.remaining() <= SHORT);
    assert_eq!(
        within_timeout("the holder hears of it", held.lost()).await,
        by
    );
    assert!(sent_at.elapsed() >= SHORT / 2, "it held for its time");
    assert!(held.check().expect_err("over").is_lost());
    let next = within_timeout("the next holds", kind.lock(&theirs, &name).acquire())
        .await
        .expect("granted");
    assert!(held.release().await.expect_err("lost").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
}

/// A holder hears at once that its lock was broken, work under the guard is stopped, and the next one follows.
pub async fn broken_hold_is_reported_lost(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("broken");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = kind.lock(&ours, &name).acquire().await.expect("granted");
    let never = crate::Token::new(held.token().get() + 1).expect("above zero");
    assert_eq!(theirs.break_hold(&name, never).await.expect("asked"), None);
    held.check().expect("another token breaks nothing");
    let broken = tokio::time::timeout(TIMEOUT, async {
        let work = held.while_held(std::future::pending::<()>());
        let breaking = theirs.break_hold(&name, held.token());
        futures_util::future::join(work, breaking).await
    });
    let (work, breaking) = broken.await.expect("the holder hears of it");
    assert!(work.expect_err("stopped").is_lost());
    assert!(breaking.expect("asked").is_some());
    assert_eq!(held.loss(), Some(LossReason::Revoked));
    drop(held);
    within_timeout("the next holds", kind.lock(&theirs, &name).acquire())
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
}

/// A hold that its own client breaks is over before the next one holds.
pub async fn hold_broken_by_own_client_is_lost(service: &dyn Service, kind: LockKind) {
    let (locks, name) = (client(service).await, fresh_name("own"));
    let held = kind.lock(&locks, &name).acquire().await.expect("granted");
    let lock = kind.lock(&locks, &name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&locks, &name, 1).await;
    locks
        .break_hold(&name, held.token())
        .await
        .expect("asked")
        .expect("it was held");
    let next = within_timeout("the next holds", waiting)
        .await
        .expect("it runs")
        .expect("granted");
    assert!(held.check().expect_err("two hold at once").is_lost());
    assert_eq!(
        within_timeout("the loss is heard", held.lost()).await,
        LossReason::Revoked
    );
    assert!(held.release().await.expect_err("broken").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
}

/// A claim that nobody renews ends with its lease, where the store promises so, and is passed over.
pub async fn unrenewed_claim_expires(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("silent");
    let (silent, locks) = (store(service).await, client(service).await);
    if !silent.guarantees().lease_expiry {
        return;
    }
    let claim = |share| Claim {
        name: Name::parse(&name).expect("a good name"),
        id: ClaimId::draw(),
        share,
        lease: SHORT,
        auto_renew: true,
        info: ClaimantInfo::here("").expect("a good label").into(),
    };
    let (holder, waiter) = (claim(kind.share()), claim(kind.share()));
    let entered = silent
        .enter(&holder, OnContention::Queue)
        .await
        .expect("entered");
    assert!(entered.standing.token().is_some());
    silent
        .enter(&waiter, OnContention::Queue)
        .await
        .expect("entered");
    let both_over = Instant::now() + SHORT;
    let held = within_timeout("the lease ends", kind.lock(&locks, &name).acquire())
        .await
        .expect("granted");
    // Without a line in the store the waiter was in nobody's way.
    tokio::time::sleep_until(both_over.into()).await;
    assert_eq!(
        silent
            .renew(&[holder.clone(), waiter])
            .await
            .expect("asked"),
        [None, None]
    );
    assert!(
        !silent.leave(&holder).await.expect("asked"),
        "there is nothing left to leave"
    );
    assert_eq!(
        within_timeout("it is gone", silent.changed(&holder, entered.standing))
            .await
            .expect("asked"),
        Standing::Gone
    );
    held.release().await.expect("released");
    empty(&locks, &name).await;
}
