//! Leases: renewed, fixed, bounded, broken.

use std::time::{Duration, Instant};

use super::subject::{PATIENCE, client, empty, fresh_name, soon, store, waiters};
use super::{Face, Service};
use crate::{Claim, ClaimId, Loss, Name, Note, Patience, Standing};

const SHORT: Duration = Duration::from_millis(300);
/// One that is to be renewed in time on a machine that has much else to do.
const RENEWED: Duration = Duration::from_secs(1);

/// A lock is held far beyond its lease as long as its guard lives.
pub async fn held_beyond_the_lease(service: &dyn Service, face: Face) {
    let name = fresh_name("renewed");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = face.lock(&ours, &name).with(|lock| lock.lease(RENEWED)).acquire().await.expect("granted");
    let others = face.lock(&theirs, &name);
    assert!(others.try_acquire_for(RENEWED * 5 / 2).await.expect("asked").is_none());
    held.check().expect("still held");
    held.release().await.expect("released");
}

/// A fixed lease is over when its time is, and the guard with it, before the next can hold.
pub async fn fixed_leases_end(service: &dyn Service, face: Face) {
    ends(service, face, Loss::LeaseOver).await;
}

/// `max_hold` ends a hold that is being renewed.
pub async fn long_holds_end(service: &dyn Service, face: Face) {
    ends(service, face, Loss::HeldTooLong).await;
}

async fn ends(service: &dyn Service, face: Face, by: Loss) {
    let name = fresh_name("ends");
    let (ours, theirs) = (client(service).await, client(service).await);
    let asked = Instant::now();
    let lock = face.lock(&ours, &name).with(|lock| match by {
        Loss::LeaseOver => lock.lease(SHORT).fixed(),
        _ => lock.lease(SHORT * 10).max_hold(SHORT),
    });
    let held = lock.acquire().await.expect("granted");
    assert!(held.remaining() <= SHORT);
    assert_eq!(soon("the holder hears of it", held.lost()).await, by);
    assert!(asked.elapsed() >= SHORT / 2, "it held for its time");
    assert!(held.check().expect_err("over").is_lost());
    let next = soon("the next holds", face.lock(&theirs, &name).acquire()).await.expect("granted");
    assert!(held.release().await.expect_err("lost").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
}

/// A holder hears at once that its lock was broken, work under the guard is stopped, and the next one follows.
pub async fn broken_is_heard(service: &dyn Service, face: Face) {
    let name = fresh_name("broken");
    let (ours, theirs) = (client(service).await, client(service).await);
    let held = face.lock(&ours, &name).acquire().await.expect("granted");
    let never = crate::Token::new(held.token().get() + 1).expect("above zero");
    assert_eq!(theirs.break_hold(&name, never).await.expect("asked"), None);
    held.check().expect("another token breaks nothing");
    let broken = tokio::time::timeout(PATIENCE, async {
        let work = held.while_held(std::future::pending::<()>());
        let breaking = theirs.break_hold(&name, held.token());
        futures_util::future::join(work, breaking).await
    });
    let (work, breaking) = broken.await.expect("the holder hears of it");
    assert!(work.expect_err("stopped").is_lost());
    assert!(breaking.expect("asked").is_some());
    assert_eq!(held.loss(), Some(Loss::Gone));
    drop(held);
    soon("the next holds", face.lock(&theirs, &name).acquire())
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
}

/// A hold that its own client breaks is over before the next one holds.
pub async fn broken_by_its_own_client(service: &dyn Service, face: Face) {
    let (locks, name) = (client(service).await, fresh_name("own"));
    let held = face.lock(&locks, &name).acquire().await.expect("granted");
    let lock = face.lock(&locks, &name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&locks, &name, 1).await;
    locks.break_hold(&name, held.token()).await.expect("asked").expect("it was held");
    let next = soon("the next holds", waiting).await.expect("it runs").expect("granted");
    assert!(held.check().expect_err("two hold at once").is_lost());
    assert_eq!(soon("the loss is heard", held.lost()).await, Loss::Gone);
    assert!(held.release().await.expect_err("broken").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
}

/// A claim that nobody renews ends with its lease, where the store promises so, and is passed over.
pub async fn silent_claims_end(service: &dyn Service, face: Face) {
    let name = fresh_name("silent");
    let (silent, locks) = (store(service).await, client(service).await);
    if !silent.promises().expiry {
        return;
    }
    let claim = |share| Claim {
        name: Name::parse(&name).expect("a good name"),
        id: ClaimId::draw(),
        share,
        lease: SHORT,
        renewed: true,
        note: Note::here("").expect("a good label").into(),
    };
    let (holder, waiter) = (claim(face.share()), claim(face.share()));
    let entered = silent.enter(&holder, Patience::Queue).await.expect("entered");
    assert!(entered.standing.token().is_some());
    silent.enter(&waiter, Patience::Queue).await.expect("entered");
    let both_over = Instant::now() + SHORT;
    let held = soon("the lease ends", face.lock(&locks, &name).acquire()).await.expect("granted");
    // Without a line in the store the waiter was in nobody's way.
    tokio::time::sleep_until(both_over.into()).await;
    assert_eq!(silent.renew(&[holder.clone(), waiter]).await.expect("asked"), [None, None]);
    assert!(!silent.leave(&holder).await.expect("asked"), "there is nothing left to leave");
    assert_eq!(soon("it is gone", silent.changed(&holder, entered.standing)).await.expect("asked"), Standing::Gone);
    held.release().await.expect("released");
    empty(&locks, &name).await;
}
