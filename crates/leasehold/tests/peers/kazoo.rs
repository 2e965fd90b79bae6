//! A failed try of kazoo leaves its node behind, and the lock stays held until the session ends.

use std::time::Duration;

use lab_servers::{Wire, ZooKeeper};
use leasehold::store::{OnContention, Store};
use leasehold::stores;

use super::{claim, empty, open, use_once, within_timeout};

#[tokio::test]
async fn kazoo_failed_try_leaves_no_node() {
    let server = ZooKeeper::setup().tick(2_000).start();
    let theirs = open(&server.url()).await;
    use_once(&theirs, "a").await;
    let wire = Wire::to(server.address());
    let url = format!("{}?session=40s", wire.url_of("zookeeper"));
    let builder = stores::ZooKeeper::builder(&url).expect("a good URL");
    let store = builder.connect().await.expect("it connects");
    let claim = claim("a");

    // The server creates the node, and the client times out before the reply.
    wire.lose_replies(true);
    let entering = store.enter(&claim, OnContention::Queue);
    let lost = tokio::time::timeout(Duration::from_secs(1), entering).await;
    assert!(!matches!(lost, Ok(Ok(_))), "a reply arrived: {lost:?}");
    let lock_state = theirs.inspect("a").await.expect("inspected");
    assert_eq!(lock_state.entries.len(), 1);
    wire.lose_replies(false);
    wire.partition();

    let left = async { while store.leave(&claim).await.is_err() {} };
    within_timeout("the claim leaves", left).await;
    within_timeout("the queue is empty", empty(&theirs, "a")).await;
}
