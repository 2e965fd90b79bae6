//! A password in a file, which changes while the store is open.

use lab_servers::{Wire, ZooKeeper};

use crate::{open, use_once, within_timeout};

/// A node's rights belong to the user and the password of the session that made it.
#[tokio::test]
async fn new_session_uses_the_password_that_the_file_has_now() {
    let server = ZooKeeper::start();
    // Every user may add nodes to a folder that was made without acl=creator.
    use_once(&open(&server.url()).await, "any").await;

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "first\n").expect("written");
    let wire = Wire::to(server.address());
    let host = wire.url_of("zookeeper").replace("zookeeper://", "");
    let settings = format!("session=1s&acl=creator&password-file={}", file.display());
    let ours = open(&format!("zookeeper://me@{host}?{settings}")).await;
    let held = ours.mutex("a").acquire().await.expect("granted");

    std::fs::write(&file, "second\n").expect("written");
    wire.refuse(true);
    wire.partition();
    within_timeout("the hold is lost", held.lost()).await;
    let theirs = open(&as_user("first", &server)).await;
    let next = within_timeout("the session ends", theirs.mutex("a").acquire()).await;
    let _next = next.expect("granted");
    wire.refuse(false);
    let later = within_timeout("a later claim is granted", ours.mutex("b").acquire()).await;
    let _later = later.expect("granted");

    for (password, may_read) in [("first", false), ("second", true)] {
        let read = open(&as_user(password, &server)).await.inspect("b").await;
        assert_eq!(read.is_ok(), may_read, "{password}: {read:?}");
    }
}

fn as_user(password: &str, server: &ZooKeeper) -> String {
    format!("zookeeper://me:{password}@{}", server.address())
}
