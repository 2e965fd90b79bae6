//! What the engine asks of a store, asked directly.

use super::Service;
use super::support::{client, fresh_name, store};
use crate::{Claim, ClaimId, ClaimantInfo, Name, OnContention, Share, Standing};

fn claim(name: &str) -> Claim {
    Claim {
        name: Name::parse(name).expect("a good name"),
        id: ClaimId::draw(),
        share: Share::MUTEX,
        lease: std::time::Duration::from_secs(30),
        auto_renew: true,
        info: ClaimantInfo::here("").expect("a good label").into(),
    }
}

/// Entering again finds the claim where it is, holding or waiting, with the same token.
pub async fn repeated_enter_is_idempotent(service: &dyn Service) {
    let (store, name) = (store(service).await, fresh_name("enter"));
    let (holder, waiter) = (claim(&name), claim(&name));
    let held = store
        .enter(&holder, OnContention::Queue)
        .await
        .expect("entered")
        .standing;
    assert!(held.token().is_some());
    assert_eq!(
        store
            .enter(&holder, OnContention::Fail)
            .await
            .expect("entered")
            .standing,
        held
    );
    for _ in 0..2 {
        let queued = store
            .enter(&waiter, OnContention::Queue)
            .await
            .expect("entered")
            .standing;
        assert_eq!(queued, Standing::Queued { ahead: 1 });
    }
    assert_eq!(
        store
            .inspect(&holder.name)
            .await
            .expect("looked")
            .entries
            .len(),
        2
    );
    assert!(store.leave(&holder).await.expect("left"));
    let granted = store
        .changed(&waiter, Standing::Queued { ahead: 1 })
        .await
        .expect("waited");
    assert!(granted.token() > held.token());
    assert!(store.leave(&waiter).await.expect("left"));
}

/// A claim that is in line may keep a smaller share, and never take a larger one.
pub async fn share_can_only_shrink(service: &dyn Service) {
    let (store, name) = (store(service).await, fresh_name("shrink"));
    if !store.guarantees().shares {
        return;
    }
    let with = |claim: &Claim, share| Claim {
        share,
        ..claim.clone()
    };
    let reader = with(&claim(&name), Share::READER);
    let held = store
        .enter(&reader, OnContention::Queue)
        .await
        .expect("entered")
        .standing;
    for larger in [Share::MUTEX, Share::WRITER] {
        assert!(
            store
                .enter(&with(&reader, larger), OnContention::Queue)
                .await
                .expect_err("refused")
                .is_invalid()
        );
    }
    let slots = Share::slots(1, 3).expect("it fits");
    assert!(
        store
            .enter(&with(&reader, slots), OnContention::Queue)
            .await
            .expect_err("refused")
            .is_mismatch()
    );
    assert_eq!(
        store
            .enter(&reader, OnContention::Queue)
            .await
            .expect("entered")
            .standing,
        held
    );
    assert!(store.leave(&reader).await.expect("left"));
}

/// Leaving again is nothing, also for a claim that never entered; a waiter that left is gone.
pub async fn repeated_leave_is_idempotent(service: &dyn Service) {
    let (store, name) = (store(service).await, fresh_name("leave"));
    let (holder, waiter) = (claim(&name), claim(&name));
    assert!(!store.leave(&holder).await.expect("asked"));
    store
        .enter(&holder, OnContention::Queue)
        .await
        .expect("entered");
    store
        .enter(&waiter, OnContention::Queue)
        .await
        .expect("entered");
    assert!(store.leave(&waiter).await.expect("left"));
    assert!(!store.leave(&waiter).await.expect("asked"));
    let queued = Standing::Queued { ahead: 1 };
    assert_eq!(
        store.changed(&waiter, queued).await.expect("asked"),
        Standing::Gone
    );
    assert_eq!(
        store
            .renew(&[waiter, holder.clone()])
            .await
            .expect("asked")
            .iter()
            .filter(|left| left.is_some())
            .count(),
        1
    );
    assert!(store.leave(&holder).await.expect("left"));
    assert!(!store.leave(&holder).await.expect("asked"));
}

/// A claim that was refused has left no entry.
pub async fn refused_claim_leaves_no_entry(service: &dyn Service) {
    let (store, name) = (store(service).await, fresh_name("refused"));
    let (holder, impatient) = (claim(&name), claim(&name));
    store
        .enter(&holder, OnContention::Fail)
        .await
        .expect("entered")
        .standing
        .token()
        .expect("it was free");
    assert_eq!(
        store
            .enter(&impatient, OnContention::Fail)
            .await
            .expect("asked")
            .standing,
        Standing::Gone
    );
    assert_eq!(
        store
            .inspect(&holder.name)
            .await
            .expect("looked")
            .entries
            .len(),
        1
    );
    assert!(!store.leave(&impatient).await.expect("asked"));
    assert!(store.leave(&holder).await.expect("left"));
}

/// Names in use are listed by prefix, sorted, up to a number; free ones are not.
pub async fn names_are_listed(service: &dyn Service) {
    let (locks, base) = (client(service).await, fresh_name("listed"));
    let mut held = Vec::new();
    for name in ["b", "a", "c/d", "ä"] {
        held.push(
            locks
                .mutex(&format!("{base}/{name}"))
                .acquire()
                .await
                .expect("granted"),
        );
    }
    locks
        .mutex(&format!("{base}/free"))
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
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
}
