//! Mutual exclusion, and a larger token with every grant.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::support::{all_end, break_held, client, fresh_name};
use super::{LockKind, Service};
use leasehold_core::Token;

/// Many clients with many tasks each count one number down. No two of them hold the lock at once.
/// Two mutexes of one session of etcd would, because both use the session's key.
///
/// Shows G-01, S3.
pub async fn holders_exclude_each_other(service: &dyn Service, kind: LockKind) {
    const CLIENTS: u64 = 4;
    const TASKS: u64 = 5;
    const CYCLES: u64 = 5;
    let name = fresh_name("excludes");
    let left = Arc::new(AtomicU64::new(1 + CLIENTS * TASKS * CYCLES));
    let inside = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();

    for _ in 0..CLIENTS {
        let locks = client(service).await;
        for _ in 0..TASKS {
            let lock = kind.lock(&locks, &name);
            let left = Arc::clone(&left);
            let inside = Arc::clone(&inside);
            tasks.spawn(async move {
                for _ in 0..CYCLES {
                    let held = lock.acquire().await.expect("granted");
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold at once");
                    let read = left.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    left.store(read - 1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    held.release().await.expect("released");
                }
            });
        }
    }

    all_end(tasks).await;
    assert_eq!(left.load(Ordering::SeqCst), 1);
}

/// Each grant has a larger token than every grant before it, for all clients together.
///
/// A store that does not guarantee this states so in its guarantees. Its tokens still differ from
/// each other, because an operator breaks a hold by its token.
///
/// Shows G-04, S1.
pub async fn tokens_increase(service: &dyn Service, kind: LockKind) {
    let granted = granted_tokens(service, kind).await;
    assert_eq!(granted.len(), 40);

    if client(service).await.guarantees().tokens {
        assert!(granted.is_sorted_by(|one, next| one < next), "{granted:?}");
        return;
    }
    let distinct: HashSet<Token> = granted.iter().copied().collect();
    assert_eq!(distinct.len(), granted.len(), "{granted:?}");
}

/// A guard gives a fencing token only if a resource can compare it with others.
///
/// Shows G-04.
pub async fn only_stores_with_tokens_give_fencing_tokens(service: &dyn Service) {
    let locks = client(service).await;
    let guard = locks
        .mutex(fresh_name("fencing"))
        .acquire()
        .await
        .expect("granted");
    let fencing = guard.fencing_token();

    if locks.guarantees().tokens {
        let fencing = fencing.expect("the store has tokens");
        assert_eq!(fencing.token(), guard.token());
        assert_eq!(fencing.claim(), guard.claim_id());
    } else {
        assert!(fencing.expect_err("it has none").is_unsupported());
    }
}

/// Grants one lock to four clients, ten times each. Returns the tokens in the order of the grants.
async fn granted_tokens(service: &dyn Service, kind: LockKind) -> Vec<Token> {
    let name = fresh_name("tokens");
    let granted = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();

    for _ in 0..4 {
        let lock = kind.lock(&client(service).await, &name);
        let granted = Arc::clone(&granted);
        tasks.spawn(async move {
            for _ in 0..10 {
                let held = lock.acquire().await.expect("granted");
                granted.lock().push(held.token());
                held.release().await.expect("released");
            }
        });
    }

    all_end(tasks).await;
    granted.lock().clone()
}

/// A released lock is free for a second client. The release of a lost guard reports the loss.
///
/// Shows G-03.
pub async fn released_guard_is_invalid(service: &dyn Service, kind: LockKind) {
    let name = fresh_name("released");
    let ours = kind.lock(&client(service).await, &name);
    let operator = client(service).await;
    let theirs = kind.lock(&operator, &name);

    let held = ours.acquire().await.expect("granted");
    assert!(held.check().is_ok());
    assert!(held.loss().is_none());
    let refused = theirs.try_acquire().await.expect("the store replies");
    assert!(refused.is_err(), "two hold at once");

    held.release().await.expect("released");
    let again = theirs
        .try_acquire()
        .await
        .expect("the store replies")
        .expect("the lock is free");

    break_held(&operator, &name, again.token()).await;
    assert!(again.release().await.expect_err("it was broken").is_lost());
}
