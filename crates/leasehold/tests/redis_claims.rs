//! Claims of the Redis store as the server and the client keep them.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::time::Duration;

use lab_servers::Redis as Server;
use leasehold::modelled::{redis_layout, redis_scripts, tracked_redis_claims};
use leasehold::{Locks, stores::Redis};

#[tokio::test]
async fn local_claim_state_is_dropped_on_release() {
    const SOON: Duration = Duration::from_millis(5);
    let server = Server::start();
    let builder = Redis::builder(&server.url()).expect("a good URL");
    let store = builder.connect().await.expect("the client connects");
    let tracked_claims = tracked_redis_claims(&store);
    let locks = Locks::from_store(store, "redis:").expect("the background thread runs");

    for _ in 0..20 {
        let lock = locks.mutex("a");
        let held = lock.acquire().await.expect("granted");
        assert!(lock.try_acquire().await.expect("a reply").is_none());
        assert!(lock.try_acquire_for(SOON).await.expect("a reply").is_none());
        drop(tokio::time::timeout(SOON, lock.acquire()).await);
        drop(tokio::time::timeout(SOON, held.lost()).await);
        drop(held);

        let held = lock.acquire().await.expect("granted");
        held.release().await.expect("released");
    }

    leasehold::drain().await;
    assert_eq!(tracked_claims(), 0);
}

/// The claim's connection may have just broken. Its client reconnects, or a contender finds the
/// absence later, as with other holders.
#[test]
fn requesting_claim_counts_as_alive() {
    let server = Server::start();
    let [enter, ..] = redis_scripts::texts();
    let id = "i".repeat(redis_layout::record::CLAIM.len);
    let record = record_without_connection(&server, &id);
    for mode in ["R", "F", "Q"] {
        let hint = "0".repeat(redis_layout::request::HINT.len);
        let settings = format!("{mode}{hint}nonce-{mode}----");
        let life = (24 * 60 * 60 * 1_000 + 30_000).to_string();

        let key = "leasehold:{a}";
        let never = "9999999999";
        let request = ["EVAL", enter, "1", key, &record, &life, &settings, never];
        let reply = server.command(&request);
        let standing = redis_layout::reply::STANDING.read(reply.text());
        assert_eq!(standing, Some("H"), "requested with {mode}");
    }
}

/// A record of one of two slots, whose client has no connection.
fn record_without_connection(server: &Server, id: &str) -> String {
    let info = server.info("replication");
    let replication_id = info
        .lines()
        .find_map(|line| line.strip_prefix("master_replid:"))
        .expect("every server has a replication id");
    let history = &replication_id[..redis_layout::record::SERVER.len];

    let token = "0".repeat(redis_layout::record::TOKEN.len);
    let nonce = "-".repeat(redis_layout::record::NONCE.len);
    let client = "c".repeat(redis_layout::record::CLIENT.len);
    format!("{token}H{id}{nonce}{client}00000001{history}0005000 v1 1 2 30000 0 1 h p l")
}
