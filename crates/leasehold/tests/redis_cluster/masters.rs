//! Masters that fail.

use std::time::{Duration, Instant};

use lab_servers::{Cluster, Redis, Release};
use leasehold_conformance::support::waiters;

use super::{FAILOVER_MAX, acquire, name_per_master, open, slot_of};

#[tokio::test]
async fn locks_of_all_masters_are_granted_listed_and_released() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "").await;
    let names = name_per_master(&cluster);
    for name in &names {
        let held = locks.mutex(name).acquire().await.expect("granted");
        let listed = locks.list("", 10).await.expect("listed");
        assert_eq!(listed.len(), 1, "{listed:?}");
        held.release().await.expect("released");
    }
}

/// Shows G-01.
#[tokio::test]
async fn hold_survives_a_killed_master() {
    hold_survives(Release::Installed).await;
}

#[tokio::test]
async fn hold_survives_a_killed_master_of_redis_6_2() {
    hold_survives(Release::Redis62).await;
}

#[tokio::test]
async fn hold_survives_a_killed_master_of_valkey() {
    hold_survives(Release::Valkey9).await;
}

/// The replica has the hold. So the client renews it on the new master.
async fn hold_survives(release: Release) {
    let mut cluster = Cluster::of(&Redis::setup().release(release));
    let locks = open(&cluster, "crash-grace=20s").await;
    let other = open(&cluster, "").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let lock = other.mutex("a").lease(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&locks, "a", 1).await;
    let slot = slot_of(&cluster, "a");
    let old = cluster.master_of(slot);
    cluster.node(old + 3).in_step_with(cluster.node(old));

    cluster.node_mut(old).kill();
    let _new = cluster.master_other_than(old, slot);
    let begun = Instant::now();
    while locks.inspect("a").await.is_err() {
        assert!(
            begun.elapsed() < FAILOVER_MAX,
            "the new master is not found"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held.check().expect("the hold is valid");

    let token = held.token();
    held.release().await.expect("released on the new master");
    let next = tokio::time::timeout(FAILOVER_MAX, waiting)
        .await
        .expect("granted in time")
        .expect("the task ends")
        .expect("granted");
    assert!(next.token() > token, "the tokens rise");
}

/// Holds on other masters are renewed while one master is paused and has no replica.
#[tokio::test]
async fn paused_master_delays_no_renewal_elsewhere() {
    let mut cluster = Cluster::of(&Redis::setup().config("cluster-require-full-coverage", "no"));
    let locks = open(&cluster, "crash-grace=2s").await;
    let names = name_per_master(&cluster);
    let mut held = Vec::new();
    for name in &names {
        held.push(
            locks
                .mutex(name)
                .lease(Duration::from_secs(6))
                .acquire()
                .await
                .expect("granted"),
        );
    }

    let lost = cluster.master_of(slot_of(&cluster, &names[0]));
    cluster.node_mut(lost + 3).kill();
    cluster.node(lost).pause();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        held[1].check().expect("its master runs");
        held[2].check().expect("its master runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(held[0].check().is_err(), "its master is paused");
    cluster.node(lost).resume();
}

/// A master that became a replica still replies to pings.
#[tokio::test]
async fn client_leaves_a_master_that_became_a_replica() {
    let cluster = Cluster::start();
    let locks = open(&cluster, "crash-grace=20s").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let slot = slot_of(&cluster, "a");
    let old = cluster.master_of(slot);

    let new = cluster.hand_over_master(old, slot);
    let begun = Instant::now();
    loop {
        let channels = cluster
            .node(new)
            .command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"]);
        let alive = channels.texts().into_iter().any(|channel| {
            let client = channel.rsplit(':').next().expect("a channel has a client");
            let record = cluster.node(new).command(&["GET", "leasehold:{a}"]);
            record.text().contains(client)
        });
        if alive {
            break;
        }
        held.check().expect("the hold is valid");
        assert!(
            begun.elapsed() < FAILOVER_MAX,
            "the hold is not bound to the new master"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    held.release().await.expect("released");
    drop(acquire(&locks, "a").await);
}
