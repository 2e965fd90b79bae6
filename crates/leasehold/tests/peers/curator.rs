//! After a session has ended Curator may take the node that it left for one of its own, and two hold.

use lab_servers::{Wire, ZooKeeper};
use leasehold::{Patience, Standing, Store, stores};
use zookeeper_client::{Acls, Client, CreateMode};

use super::{claim, open, soon};

#[tokio::test]
async fn curator_ghost_of_another_session_is_not_ours() {
    let server = ZooKeeper::start();
    open(&server.url()).await.mutex("a").acquire().await.expect("granted").release().await.expect("released");
    let wire = Wire::to(server.address());
    let url = wire.url_of("zookeeper");
    let store = stores::ZooKeeper::at(&url).expect("a good URL").connect().await.expect("it connects");
    let claim = claim("a");
    // As an earlier session would have left it.
    let ghosts = Client::connect(&server.address()).await.expect("it connects");
    let path = format!("/leasehold/a/_c_{}-lock-", uuid::Uuid::from_bytes(claim.id.to_bytes()));
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    ghosts.create(&path, b"", &options).await.expect("made");
    wire.drop_replies(1);
    // The answer is lost, so that the node must be found by its id.
    let mut standing = None;
    while standing.is_none() {
        standing = soon("it is answered", store.enter(&claim, Patience::Queue)).await.ok().map(|entered| entered.standing);
    }
    assert_eq!(standing, Some(Standing::Queued { ahead: 1 }));
}
