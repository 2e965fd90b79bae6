//! A try of kazoo's that fails half way leaves its node, and the lock stays taken until its session ends.

use std::time::Duration;

use lab_servers::{Wire, ZooKeeper};

use super::{empty, open, soon};

#[tokio::test]
async fn kazoo_failed_try_leaves_no_node() {
    let server = ZooKeeper::start();
    let wire = Wire::to(server.address());
    let (ours, theirs) = (open(&wire.url_of("zookeeper")).await, open(&server.url()).await);
    ours.mutex("a").acquire().await.expect("granted").release().await.expect("released");
    for turn in 0..5 {
        wire.drop_replies(1);
        // Given up while its node is being made, and nobody knows whether it is.
        let lock = ours.mutex("a");
        let giving_up = tokio::time::timeout(Duration::from_millis(5 * turn), lock.acquire());
        drop(giving_up.await);
        soon("nothing is left", empty(&theirs, "a")).await;
    }
    let _held = soon("it is free", theirs.mutex("a").acquire()).await.expect("granted");
}
