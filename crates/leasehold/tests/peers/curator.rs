//! After a session has ended Curator may take the node that it left for one of its own, and two hold.

use std::time::Duration;

use lab_servers::{Wire, ZooKeeper};
use leasehold::store::{OnContention, Standing, Store};
use leasehold::stores;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{claim, open, within_timeout};

/// So many that one of them is listed before the one that is ours.
const LEFTOVERS: u32 = 20;

#[tokio::test]
async fn curator_leftover_node_of_another_session_is_not_reused() {
    let server = ZooKeeper::start();
    open(&server.url())
        .await
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let wire = Wire::to(server.address());
    let url = wire.url_of("zookeeper");
    let store = stores::ZooKeeper::builder(&url)
        .expect("a good URL")
        .connect()
        .await
        .expect("it connects");
    let claim = claim("a");
    // As an earlier session would have left it.
    let ghosts = Client::connect(&server.address())
        .await
        .expect("it connects");
    let path = format!(
        "/leasehold/a/_c_{}-lock-",
        uuid::Uuid::from_bytes(claim.id.to_bytes())
    );
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for _ in 0..LEFTOVERS {
        ghosts.create(&path, b"", &options).await.expect("made");
    }
    // The answer is lost, so that the node must be found by its id.
    wire.lose_replies(true);
    let entering = store.enter(&claim, OnContention::Queue);
    let lost = tokio::time::timeout(Duration::from_secs(1), entering).await;
    assert!(
        !matches!(lost, Ok(Ok(_))),
        "its answer cannot come: {lost:?}"
    );
    wire.lose_replies(false);
    wire.partition();
    let mut standing = None;
    while standing.is_none() {
        standing = within_timeout("it is answered", store.enter(&claim, OnContention::Queue))
            .await
            .ok()
            .map(|entered| entered.standing);
    }
    assert_eq!(standing, Some(Standing::Queued { ahead: LEFTOVERS }));
}
