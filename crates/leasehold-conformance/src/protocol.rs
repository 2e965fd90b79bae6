//! The requests of the engine, sent to a store directly.

use std::time::Duration;

use super::support::{
    BRIEF_LEASE, acquire, break_held, claim, client, enter, eventually, fresh_name, release, store,
    within_timeout,
};
use super::{Service, shares};
use leasehold_core::store::{Claim, OnContention, Share, Standing, Store};
use leasehold_core::{LockState, SemaphoreSupport};

/// A store without a message of the release polls after 5 s.
const BEFORE_A_POLL: Duration = Duration::from_secs(4);

/// A repeated enter finds the claim where it is, holding or waiting, with the same token. A later
/// claim does not get ahead of it, and a waiter that begins to wait after the release is granted at
/// once.
///
/// Shows G-16.
pub async fn repeated_enter_is_idempotent(service: &dyn Service) {
    let store = store(service).await;
    let name = fresh_name("enter");
    let holder = claim(&name);
    let waiter = claim(&name);
    let later = claim(&name);

    let held = enter(&*store, &holder, OnContention::Queue).await;
    assert!(held.token().is_some());
    let again = enter(&*store, &holder, OnContention::Fail).await;
    assert_eq!(again, held);

    for _ in 0..2 {
        let queued = enter(&*store, &waiter, OnContention::Queue).await;
        assert_eq!(queued, Standing::Queued { ahead: 1 });
        enter(&*store, &later, OnContention::Queue).await;
    }
    assert_eq!(inspect(&*store, &holder).await.entries.len(), 3);
    assert!(leave(&*store, &later).await);

    assert!(leave(&*store, &holder).await);
    let changed = tokio::time::timeout(BEFORE_A_POLL, store.queued(&waiter, 1)).await;
    let granted = changed.expect("the waiter is granted before it polls");
    assert!(granted.expect("the store replies").token() > held.token());
    assert!(leave(&*store, &waiter).await);
}

/// After a hand-over, a new waiter learns how many claims are ahead of it: the new holder, and those
/// that still wait.
///
/// Shows G-16.
pub async fn claims_ahead_are_counted_after_a_hand_over(service: &dyn Service) {
    let store = store(service).await;
    if !store.guarantees().fifo {
        return;
    }
    let name = fresh_name("ahead");
    let [holder, next, waiter, last] = [(); 4].map(|()| claim(&name));

    enter(&*store, &holder, OnContention::Queue).await;
    enter(&*store, &next, OnContention::Queue).await;
    let queued = enter(&*store, &waiter, OnContention::Queue).await;
    assert_eq!(queued, Standing::Queued { ahead: 2 });
    assert!(leave(&*store, &holder).await);

    let queued = enter(&*store, &last, OnContention::Queue).await;
    assert_eq!(queued, Standing::Queued { ahead: 2 });
    for claim in [last, waiter, next] {
        assert!(leave(&*store, &claim).await);
    }
}

/// A claim in the queue may keep a smaller share. It never takes a larger one.
///
/// Shows G-16, S6.
pub async fn share_can_only_shrink(service: &dyn Service) {
    if shares::without_readers(service).await {
        return;
    }
    let store = store(service).await;
    let claim = claim(&fresh_name("shrink"));
    let with = |share| {
        let mut claim = claim.clone();
        claim.share = share;
        claim
    };

    let reader = with(Share::READER);
    let held = enter(&*store, &reader, OnContention::Queue).await;
    for larger in [Share::MUTEX, Share::WRITER] {
        let refused = store.enter(&with(larger), OnContention::Queue).await;
        assert!(refused.expect_err("a larger share").is_invalid());
    }

    let slot = Share::slots(1, 3).expect("at most 3 permits");
    let refused = store.enter(&with(slot), OnContention::Queue).await;
    let error = refused.expect_err("another kind");
    let has_slots = store.guarantees().semaphore != SemaphoreSupport::Unsupported;
    assert!(
        error.is_mismatch() == has_slots && error.is_unsupported() != has_slots,
        "{error}"
    );
    let again = enter(&*store, &reader, OnContention::Queue).await;
    assert_eq!(again, held);
    assert!(leave(&*store, &reader).await);
}

/// A repeated leave changes nothing, even for a claim that never entered. A waiter that left is
/// gone. A leave after another client has broken the hold reports that, also if the claim had waited.
///
/// Shows G-03, G-16, S6.
pub async fn repeated_leave_is_idempotent(service: &dyn Service) {
    let store = store(service).await;
    let name = fresh_name("leave");
    let holder = claim(&name);
    let waiter = claim(&name);
    assert!(!leave(&*store, &holder).await);

    enter(&*store, &holder, OnContention::Queue).await;
    enter(&*store, &waiter, OnContention::Queue).await;
    assert!(leave(&*store, &waiter).await);
    assert!(!leave(&*store, &waiter).await);

    let changed = store.queued(&waiter, 1).await;
    assert_eq!(changed.expect("the store replies"), Standing::Gone);
    let renewed = store
        .renew(&[waiter, holder.clone()])
        .await
        .expect("the store replies");
    assert_eq!(renewed.iter().flatten().count(), 1);

    assert!(leave(&*store, &holder).await);
    assert!(!leave(&*store, &holder).await);

    let operator = client(service).await;
    for has_waited in [false, true] {
        let before = claim(&name);
        if has_waited {
            enter(&*store, &before, OnContention::Queue).await;
        }
        let broken = claim(&name);
        let mut standing = enter(&*store, &broken, OnContention::Queue).await;
        if has_waited {
            assert!(leave(&*store, &before).await);
            let granted = within_timeout("the grant", store.queued(&broken, 1)).await;
            standing = granted.expect("the store replies");
        }
        break_held(&operator, &name, standing.token().expect("granted")).await;
        assert!(!leave(&*store, &broken).await, "{has_waited}");
    }
}

/// A refused claim leaves no entry.
///
/// Shows G-10.
pub async fn refused_claim_leaves_no_entry(service: &dyn Service) {
    let store = store(service).await;
    let name = fresh_name("refused");
    let holder = claim(&name);
    let refused = claim(&name);

    let held = enter(&*store, &holder, OnContention::Fail).await;
    assert!(held.token().is_some(), "the lock was free");
    let standing = enter(&*store, &refused, OnContention::Fail).await;
    assert_eq!(standing, Standing::Gone);
    assert_eq!(inspect(&*store, &holder).await.entries.len(), 1);

    assert!(!leave(&*store, &refused).await);
    assert!(leave(&*store, &holder).await);
}

/// Names in use are listed by prefix, sorted, up to a maximum. Free names are not listed, and
/// neither are those whose last claim has expired.
///
/// Shows G-18.
pub async fn names_are_listed(service: &dyn Service) {
    let locks = client(service).await;
    let base = fresh_name("listed");

    let mut held = Vec::new();
    for name in ["b", "a", "c/d", "ä"] {
        held.push(acquire(&locks.mutex(format!("{base}/{name}"))).await);
    }
    // They are sorted before and between the names in use.
    for name in ["Free", "Used", "free"] {
        release(acquire(&locks.mutex(format!("{base}/{name}"))).await).await;
    }

    let listed = async |prefix: &str, count_max| {
        let names = locks.list(prefix, count_max).await.expect("listed");
        names
            .iter()
            .map(|name| name.as_str()[base.len()..].to_owned())
            .collect::<Vec<_>>()
    };

    assert_eq!(listed(&base, 100).await, ["/a", "/b", "/c/d", "/ä"]);
    assert_eq!(listed(&base, 2).await, ["/a", "/b"]);
    assert_eq!(listed(&format!("{base}/c"), 100).await, ["/c/d"]);
    assert_eq!(listed(&format!("{base}/x"), 100).await, [""; 0]);

    let mut brief = claim(&format!("{base}/x"));
    brief.lease = BRIEF_LEASE;
    let store = store(service).await;
    if store.guarantees().lease_expiry {
        enter(&*store, &brief, OnContention::Fail).await;
        eventually("an expired claim is not listed", async || {
            listed(&format!("{base}/x"), 100).await.is_empty()
        })
        .await;
    }
}

async fn leave(store: &dyn Store, claim: &Claim) -> bool {
    store.leave(claim).await.expect("the store replies")
}

async fn inspect(store: &dyn Store, claim: &Claim) -> LockState {
    store.inspect(&claim.name).await.expect("inspected")
}
