//! Claims of the Redis store as the client keeps them.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::time::Duration;

use lab_servers::Redis as Server;
use leasehold::{Locks, stores::Redis};

#[tokio::test]
async fn local_claim_state_is_dropped_on_release() {
    const SOON: Duration = Duration::from_millis(5);
    let server = Server::start();
    let builder = Redis::builder(&server.url()).expect("a good URL");
    let store = builder.connect().await.expect("the client connects");
    let locks = Locks::from_store(store, "redis:").expect("the background thread runs");

    for _ in 0..20 {
        let lock = locks.mutex("a");
        let held = lock.acquire().await.expect("granted");
        assert!(lock.try_acquire().await.expect("a reply").is_err());
        assert!(lock.try_acquire_for(SOON).await.expect("a reply").is_err());
        drop(tokio::time::timeout(SOON, lock.acquire()).await);
        drop(tokio::time::timeout(SOON, held.lost()).await);
        drop(held);

        let held = lock.acquire().await.expect("granted");
        assert!(local_states(&locks) > 0);
        held.release().await.expect("released");
    }

    leasehold::drain().await;
    assert_eq!(local_states(&locks), 0);
}

/// Counts the claims whose state the store keeps, in its debug format.
fn local_states(locks: &Locks) -> usize {
    let store = locks.store();
    format!("{store:?}").matches("TrackedClaim").count()
}
