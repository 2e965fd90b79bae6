//! URLs, users and certificates of a cluster.

use lab_servers::{Cluster, Redis, Wire};
use leasehold::Locks;

use super::{name_per_master, open, slot_of};

pub(super) async fn use_all(cluster: &Cluster, locks: &Locks) {
    for name in name_per_master(cluster) {
        let held = locks.mutex(&name).acquire().await.expect("granted");
        held.release().await.expect("released");
    }
}

#[tokio::test]
async fn one_reachable_node_of_the_url_is_enough() {
    let mut cluster = Cluster::start();
    cluster.node_mut(0).kill();
    let _new = cluster.master_other_than(0, 0);
    let locks = open(&cluster, "").await;
    use_all(&cluster, &locks).await;
}

/// The nodes announce addresses that only they reach.
#[tokio::test]
async fn announced_addresses_are_mapped() {
    let cluster = Cluster::start();
    let wires: Vec<Wire> = (0..cluster.count())
        .map(|number| Wire::to(cluster.node(number).address()))
        .collect();
    let pairs = wires
        .iter()
        .enumerate()
        .map(|(number, wire)| format!("{}={}", cluster.node(number).address(), wire.address()));
    let map: Vec<String> = pairs.collect();
    let url = format!(
        "{}?address-map={}",
        wires[0].url_of("redis+cluster"),
        map.join(",")
    );

    let locks = leasehold::open(&url).await.expect("the store opens");
    use_all(&cluster, &locks).await;
    for wire in &wires[..3] {
        assert!(
            wire.traffic().connections > 0,
            "a master is reached directly"
        );
    }
}

#[tokio::test]
async fn single_server_url_of_a_node_is_refused_with_help() {
    let cluster = Cluster::start();
    let names = name_per_master(&cluster);
    let url = cluster.node(0).url();
    let locks = leasehold::open(&url).await.expect("the store opens");
    let mut names = names.iter();
    let elsewhere = names.find(|name| cluster.master_of(slot_of(&cluster, name)) != 0);
    let error = locks
        .mutex(elsewhere.expect("two other masters have slots"))
        .acquire()
        .await
        .expect_err("another node has it");
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");

    let server = Redis::start();
    let url = format!("redis+cluster://{}", server.address());
    let error = leasehold::open(&url).await.expect_err("no cluster");
    assert!(error.is_unsupported(), "{error}");
}

/// A managed service may hide commands that only crash detection needs.
#[tokio::test]
async fn cluster_without_optional_rights_works_without_crash_detection() {
    let setup = Redis::setup()
        .acl("default on nopass ~* &* +@all")
        .acl("app on >secret ~leasehold:* &leasehold:* +@all -config -info -pubsub");
    let cluster = Cluster::of(&setup);
    let url = cluster.url().replace("://", "://app:secret@");
    let locks = leasehold::open(&url).await.expect("the store opens");
    assert_eq!(
        locks.guarantees().crash_release,
        leasehold::CrashRelease::LeaseExpiry
    );
    use_all(&cluster, &locks).await;
}
