//! Curator may mistake a node of its ended session for a node of its new session, and two clients
//! hold.

use std::time::Duration;

use lab_servers::{Wire, ZooKeeper};
use leasehold::store::{OnContention, Standing, Store};
use leasehold::stores;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{claim, open, use_once, within_timeout};

/// Enough leftover nodes that the server lists one of them before the claim's own node.
const LEFTOVERS: u32 = 20;

#[tokio::test]
async fn curator_leftover_node_of_another_session_is_not_reused() {
    let server = ZooKeeper::start();
    use_once(&open(&server.url()).await, "a").await;
    let wire = Wire::to(server.address());
    let builder = stores::ZooKeeper::builder(&wire.url_of("zookeeper")).expect("a good URL");
    let store = builder.connect().await.expect("it connects");
    let claim = claim("a");

    // These are nodes as an earlier session would have left them.
    let connected = Client::connect(&server.address()).await;
    let ghosts = connected.expect("it connects");
    let id = uuid::Uuid::from_bytes(claim.id.to_bytes());
    let path = format!("/leasehold/a/_c_{id}-lock-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for _ in 0..LEFTOVERS {
        let created = ghosts.create(&path, b"", &options).await;
        created.expect("created");
    }

    // The reply is lost, so the client must find the node by the claim's id.
    wire.lose_replies(true);
    let entering = store.enter(&claim, OnContention::Queue);
    let lost = tokio::time::timeout(Duration::from_secs(1), entering).await;
    assert!(!matches!(lost, Ok(Ok(_))), "a reply arrived: {lost:?}");
    wire.lose_replies(false);
    wire.partition();

    let entered = loop {
        let entering = store.enter(&claim, OnContention::Queue);
        if let Ok(entered) = within_timeout("a reply arrives", entering).await {
            break entered;
        }
    };
    let expected = Standing::Queued { ahead: LEFTOVERS };
    assert_eq!(entered.standing, expected);
}
