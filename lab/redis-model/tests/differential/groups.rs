//! Servers after a restart, replicas, and the nodes of a cluster.

use std::time::Duration;

use lab_redis_model::{Cluster, Host, Restart};
use lab_servers::{Cluster as RealCluster, Raw, Redis, Reply as RealReply};

use super::{converted, is_same};

const WRITE: &str = "return redis.call('SET', KEYS[1], 'x')";

#[test]
fn restarted_server_has_its_data_and_begins_another_history() {
    let mut real = Redis::setup().append_only("always").start();
    let model = Host::start("0123456789");
    let ids = |real: &Redis| {
        let in_model = [history_in(&model), run_id(&info_in(&model, "server"))];
        [history_of(real), run_id(&real.info("server"))]
            .into_iter()
            .chain(in_model)
    };
    let before: Vec<String> = ids(&real).collect();
    let load = ["SCRIPT", "LOAD", WRITE];
    let hash = real.command(&load).text().to_owned();
    model.request(&load);
    let call = ["EVALSHA", &hash, "1", "a"];
    assert_alike(&model, &mut real.connection(), &call);

    real.restart();
    model.restart(Restart::WithData);
    assert_alike(&model, &mut real.connection(), &call);
    assert_alike(&model, &mut real.connection(), &["GET", "a"]);
    for (before, after) in before.iter().zip(ids(&real)) {
        assert_ne!(*before, after);
    }
}

#[test]
fn replica_has_the_data_and_the_history_of_its_master_and_refuses_writes() {
    let real_master = Redis::start();
    let real = Redis::setup().replica_of(&real_master).start();
    let [master, model] = ["0123456789", "9876543210"].map(Host::start);
    model.follow(&master, Duration::ZERO);
    let write = ["SET", "a", "1"];
    assert_alike(&master, &mut real_master.connection(), &write);
    real.in_step_with(&real_master);

    let mut real_connection = real.connection();
    for words in [
        &["GET", "a"][..],
        &write,
        &["DEL", "missing"],
        &["PEXPIRE", "a", "10"],
        &["HSET", "h", "a", "1"],
        &["ZADD", "z", "1", "a"],
        &["EVAL", WRITE, "1", "a"],
        &["EVAL", "return redis.call('GET', KEYS[1])", "1", "a"],
    ] {
        assert_alike(&model, &mut real_connection, words);
    }
    assert!(real.info("replication").contains("role:slave"));
    assert!(info_in(&model, "replication").contains("role:slave"));
    assert_eq!(history_of(&real), history_of(&real_master));
    assert_eq!(history_in(&model), history_in(&master));
}

/// A slot moves while some of its keys, all of them, and none are at the next master.
#[test]
fn nodes_of_a_cluster_redirect_requests_about_a_moving_slot() {
    let real = RealCluster::start();
    let mut model = Cluster::start(&[["a", "a2"], ["b", "b2"], ["c", "c2"]], Duration::ZERO);
    let [one, other] = ["{a}1", "{a}2"];
    let slot = real.slot_of(one);
    let [from, to] = [real.master_of(slot), (real.master_of(slot) + 1) % 3];
    let [model_from, model_to] = [model.owner_of(one), (model.owner_of(one) + 1) % 3];
    let compare = |model: &Cluster| {
        for (node, real_node) in [(model_from, from), (model_to, to)] {
            let mut connection = real.node(real_node).connection();
            for words in [
                &["GET", one][..],
                &["EVAL", "return 1", "2", one, other],
                &["EVAL", "return 1", "2", one, "{b}1"],
                &["TIME"],
            ] {
                assert_alike(model.master(node), &mut connection, words);
                assert_alike(model.master(node), &mut connection, &["ASKING"]);
                assert_alike(model.master(node), &mut connection, words);
            }
        }
    };
    for key in [one, other] {
        let write = ["SET", key, "x"];
        assert_alike(
            model.master(model_from),
            &mut real.node(from).connection(),
            &write,
        );
    }

    compare(&model);
    real.begin_move(slot, from, to);
    model.begin_move(one, model_to);
    compare(&model);
    for key in [one, other] {
        real.move_key(key, from, to);
        model.move_key(key);
        compare(&model);
    }
    real.move_slot(slot, from, to);
    model.end_move(one);
    compare(&model);
}

fn history_of(real: &Redis) -> String {
    history(&real.info("replication"))
}

fn history_in(model: &Host) -> String {
    history(&info_in(model, "replication"))
}

fn info_in(model: &Host, section: &str) -> String {
    let info = converted(model.request(&["INFO", section]));
    info.text().to_owned()
}

fn history(info: &str) -> String {
    field(info, "master_replid:")
}

fn run_id(info: &str) -> String {
    field(info, "run_id:")
}

fn field(info: &str, name: &str) -> String {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name));
    value.expect("every server has an id").to_owned()
}

fn assert_alike(model: &Host, real: &mut Raw, words: &[&str]) {
    let replied = without_address(real.request(words).expect("the server replies"));
    let expected = without_address(converted(model.request(words)));
    assert!(
        is_same(words, &replied, &expected),
        "{words:?}\nserver: {replied:?}\n model: {expected:?}"
    );
}

/// The nodes of the model have other addresses.
fn without_address(reply: RealReply) -> RealReply {
    match reply {
        RealReply::Error(text) if text.starts_with("MOVED ") || text.starts_with("ASK ") => {
            let (code_and_slot, _) = text.rsplit_once(' ').expect("it has an address");
            RealReply::Error(code_and_slot.to_owned())
        }
        reply => reply,
    }
}
