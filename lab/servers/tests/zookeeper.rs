//! Tests of the ZooKeeper servers and ensembles of the lab.

use lab_servers::{Ensemble, ZooKeeper};

#[test]
fn zookeeper_can_be_killed_paused_and_restarted() {
    let mut server = ZooKeeper::start();
    let port = server.port();
    let pid = server.pid();
    server.pause();
    server.resume();
    assert_eq!(
        server.request("ruok").expect("a resumed server replies"),
        "imok"
    );

    server.kill();
    server
        .request("ruok")
        .expect_err("a killed server does not reply");
    server.restart();
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    assert!(server.port() == port && server.pid() != pid);
}

#[test]
fn ensemble_elects_a_leader_after_partition() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    ensemble.partition(leader);
    let other = ensemble.leader_without(leader);
    assert_ne!(other, leader);
    ensemble.heal();
    ensemble.server(leader).serves();
}

#[test]
fn leader_in_one_way_partition_keeps_leading() {
    let mut ensemble = Ensemble::of(&ZooKeeper::setup().config("syncLimit", "40"));
    let leader = ensemble.leader();
    ensemble.partition_one_way(leader);
    assert_ne!(ensemble.leader_without(leader), leader);
    assert_eq!(
        ensemble.server(leader).mode().as_deref(),
        Some("leader"),
        "{}",
        ensemble.server(leader).log()
    );
    ensemble.heal();
}
