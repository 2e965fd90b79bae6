//! Nodes of other libraries: refused, inspected and broken.

use lab_servers::ZooKeeper;
use zookeeper_client::{Acls, CreateMode};

use crate::{SERVER, is_free, open, open_folder, plain_client, use_once};

/// The error names the other layout and the help, and the refused claim leaves no node.
///
/// Shows G-01, G-06, G-23, S13.
#[tokio::test]
async fn foreign_nodes_are_refused_with_help() {
    let client = plain_client(&SERVER).await;
    let curator = open_folder("foreign").await;
    let kazoo = open(&format!("{}/foreign?dialect=kazoo", SERVER.url())).await;

    let held = curator.mutex("a").acquire().await.expect("granted");
    let error = kazoo.mutex("a").try_acquire().await.expect_err("refused");
    assert!(error.is_mismatch(), "{error}");
    assert!(error.to_string().contains("dialect=curator"), "{error}");
    let error = kazoo.inspect("a").await.expect_err("it is not free");
    assert!(error.is_mismatch(), "{error}");
    held.release().await.expect("released");

    let held = kazoo.mutex("b").acquire().await.expect("granted");
    let error = curator.mutex("b").acquire().await.expect_err("refused");
    assert!(error.is_mismatch(), "{error}");
    assert!(error.to_string().contains("dialect=kazoo"), "{error}");
    let error = curator.inspect("b").await.expect_err("it is not free");
    assert!(error.is_mismatch(), "{error}");
    held.release().await.expect("released");

    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let created = client.mkdir("/foreign/c/leases", &persistent).await;
    created.expect("created");
    let error = curator.mutex("c").acquire().await.expect_err("refused");
    assert!(error.is_mismatch(), "{error}");
    let text = error.to_string();
    assert!(text.contains("semaphore of Curator"), "{text}");

    let children = client.list_children("/foreign/c").await.expect("listed");
    assert_eq!(children, ["leases"]);
    assert!(curator.list("", 10).await.expect("listed").is_empty());

    // Beside a hold, such a node refuses a downgrade and does not end the hold.
    let writer = curator.rwlock("d").exclusive();
    let held = writer.acquire().await.expect("granted");
    let created = client.mkdir("/foreign/d/leases", &persistent).await;
    created.expect("created");
    let error = held.downgrade().await.expect_err("refused");
    assert!(error.is_mismatch(), "{error}");
    held.release().await.expect("still held");
}

/// A hold of another library can be broken by its token. A later hold with the same id stays.
///
/// Shows G-18.
#[tokio::test]
async fn foreign_lock_can_be_inspected_and_broken() {
    const NODE: &str = "/others/a/_c_79e1da5a-36b5-4c33-8d0f-a0b1c2d3e4f5-lock-";
    let locks = open_folder("others").await;
    let client = plain_client(&SERVER).await;
    use_once(&locks, "a").await;
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let created = client.create(NODE, b"10.0.0.7", &options).await;
    let stat = created.expect("created").0;

    let lock_state = locks.inspect("a").await.expect("inspected");
    let holder = &lock_state.entries[0];
    let token = holder.token().expect("it holds");
    assert_eq!(token.get().cast_signed(), stat.czxid);
    assert_eq!(&*holder.info.host, "10.0.0.7");
    assert!(!is_free(&locks, "a").await);
    assert!(locks.break_hold("a", token).await.expect("sent").is_some());

    let later = client.create(NODE, b"10.0.0.7", &options).await;
    later.expect("created");
    assert!(locks.break_hold("a", token).await.expect("sent").is_none());
    assert!(!is_free(&locks, "a").await, "the later hold was broken");
}

/// A server admits a limited number of connections from one address.
#[tokio::test]
async fn full_limit_of_connections_is_named() {
    let server = ZooKeeper::setup().config("maxClientCnxns", "1").start();
    let _first = plain_client(&server).await;
    let refused = leasehold::open(&server.url()).await.expect_err("refused");
    let causes = "no session; is it in a quorum, and is its maxClientCnxns reached?";
    assert!(refused.to_string().contains(causes), "{refused}");
}
