//! A try of kazoo's that fails half way leaves its node, and the lock stays taken until its session ends.

use std::time::Duration;

use lab_servers::{Wire, ZooKeeper};
use leasehold::store::{OnContention, Store};
use leasehold::stores;

use super::{claim, empty, open, within_timeout};

#[tokio::test]
async fn kazoo_failed_try_leaves_no_node() {
    let server = ZooKeeper::setup().tick(2_000).start();
    let theirs = open(&server.url()).await;
    theirs
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let wire = Wire::to(server.address());
    let url = format!("{}?session=40s", wire.url_of("zookeeper"));
    let store = stores::ZooKeeper::builder(&url)
        .expect("a good URL")
        .connect()
        .await
        .expect("it connects");
    let claim = claim("a");
    // Its node is made, and it does not hear of that before it gives up.
    wire.lose_replies(true);
    let entering = store.enter(&claim, OnContention::Queue);
    let lost = tokio::time::timeout(Duration::from_secs(1), entering).await;
    assert!(
        !matches!(lost, Ok(Ok(_))),
        "its answer cannot come: {lost:?}"
    );
    assert_eq!(theirs.inspect("a").await.expect("looked").entries.len(), 1);
    wire.lose_replies(false);
    wire.partition();
    while within_timeout("it is answered", store.leave(&claim))
        .await
        .is_err()
    {}
    within_timeout("nothing is left", empty(&theirs, "a")).await;
}
