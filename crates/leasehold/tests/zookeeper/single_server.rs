//! A node that a single server of the ensemble has written.

use std::path::Path;
use std::time::Duration;

use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease};
use leasehold::store::{OnContention, Standing, Store};

use crate::{claim, connect_store, open, plain_client, use_once, within_timeout};

/// A leader that is killed during a write may keep a node that the other servers do not have.
///
/// It saves all its data when it is elected again, and removes none of them if no server follows
/// it. Later it reports the node to its clients. A client that finds its node there must not
/// treat it as a grant.
///
/// Shows G-01.
#[tokio::test]
async fn node_on_a_single_server_is_not_a_grant() {
    let setup = ZooKeeper::setup()
        .config("maxSessionTimeout", "60000")
        .release(ZooKeeperRelease::Newest);
    let mut ensemble = Ensemble::of(&setup);
    let one = ensemble.leader();
    let others = [(one + 1) % 3, (one + 2) % 3];
    let url = |ensemble: &Ensemble, server: usize| {
        format!("{}?session=60s", ensemble.server(server).url())
    };
    use_once(&open(&url(&ensemble, one)).await, "x").await;
    let deceived = connect_store(&url(&ensemble, one)).await;

    // Only one server writes the node of the claim, before all servers are killed.
    ensemble.freeze(one);
    let claim = claim("x");
    let requested = tokio::spawn(async move {
        while deceived.enter(&claim, OnContention::Queue).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let entered = deceived.enter(&claim, OnContention::Queue).await;
        (entered, deceived, claim)
    });
    let node = "-lock-0000000001";
    let written = written_to(ensemble.server(one), "log.", node);
    within_timeout("the leader writes", written).await;
    (0..3).for_each(|server| ensemble.server_mut(server).kill());

    // The server is elected, and no other server follows it.
    ensemble.heal();
    ensemble.isolate(one);
    ensemble.server_mut(one).start_after_kill();
    ensemble.server_mut(others[0]).start_after_kill();
    let saved = written_to(ensemble.server(one), "snapshot.", node);
    within_timeout("it saves its data", saved).await;
    ensemble.server_mut(one).kill();

    // The other servers continue without it.
    ensemble.heal();
    ensemble.server_mut(others[1]).start_after_kill();
    let leader = ensemble.leader_without(one);
    ensemble.server_mut(one).restart();
    let theirs = open(&url(&ensemble, leader)).await;
    use_once(&theirs, "x").await;
    let guard = theirs.mutex("x").acquire().await.expect("free");
    let shown = children_of_x(ensemble.server(one)).await;
    assert!(shown.iter().any(|child| child.ends_with(node)), "{shown:?}");

    let entered = within_timeout("the claim enters", requested).await;
    let (entered, deceived, claim) = entered.expect("no panic");
    let mut standing = entered.expect("entered").standing;
    assert!(matches!(standing, Standing::Queued { .. }), "{standing:?}");
    guard.check().expect("held");
    guard.release().await.expect("held");

    // The node disappears with the session, and does not block the lock on that server.
    while let Standing::Queued { ahead } = standing {
        let changed = within_timeout("the lock", deceived.queued(&claim, ahead)).await;
        standing = changed.expect("read");
    }
    assert!(standing.token().is_some(), "{standing:?}");
    let shown = children_of_x(ensemble.server(one)).await;
    assert_eq!(shown.len(), 1, "{shown:?}");
}

async fn children_of_x(server: &ZooKeeper) -> Vec<String> {
    let client = plain_client(server).await;
    let children = client.list_children("/leasehold/x").await;
    children.expect("listed")
}

/// Waits until a data file of a server contains `text`. The name of the file starts with `prefix`.
async fn written_to(server: &ZooKeeper, prefix: &str, text: &str) {
    let is_meant = |path: &Path| {
        let name = path.file_name();
        name.is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    let has_text = |data: Vec<u8>| data.windows(text.len()).any(|part| part == text.as_bytes());
    let is_written = || {
        let folder = std::fs::read_dir(server.folder().join("version-2")).expect("it has data");
        let mut files = folder.filter_map(|entry| Some(entry.ok()?.path()));
        files.any(|path| is_meant(&path) && std::fs::read(path).is_ok_and(has_text))
    };
    while !is_written() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
