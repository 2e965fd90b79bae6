//! Acquire and release on one server, on the master that sentinels name, and on a cluster.
//!
//! Each master of the cluster has a replica on the same CPU. The server with a replica shows what
//! the replica costs.
//!
//! Redisson runs on the same servers. On Sentinel both reach the master through a proxy, so their
//! times are compared with each other only.

use anyhow::{Context, Result};
use lab::RedissonPeer;
use lab_servers::{Cluster, Redis, Sentinels};

use super::{ROUNDS, micros, permille};
use crate::client::Client;
use crate::cpus::{self, Cpus};
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// The pairs of each peer in a turn.
const PAIRS: usize = 200;
/// The turns of each peer in a round.
const TURNS: usize = 10;

pub(super) fn show() -> Result<()> {
    let single = cpus::server();
    let setup = || Redis::setup().pinned(cpus::SERVER);
    let copied = cpus::server();
    let _replica = setup().replica_of(&copied).start();
    let cluster = Cluster::of(&setup());
    let group = Sentinels::of(&setup(), &setup());
    let single_address = format!("redis://{}", single.address());
    let nodes = addresses((0..3).map(|number| cluster.node(number)));
    let sentinels = addresses((0..3).map(|number| group.sentinel(number)));

    let key_of_raw = cluster.slot_of("raw:a");
    let node = cluster.node(cluster.master_of(key_of_raw));

    let mut peers = [
        client("raw", &single.url())?,
        client("raw", &copied.url())?,
        client("raw", &node.url())?,
        client("leasehold", &single.url())?,
        client("leasehold", &copied.url())?,
        client("leasehold", &cluster.url())?,
        client("leasehold", &group.url())?,
        redisson("lock", &single_address)?,
        redisson("fair", &single_address)?,
        redisson("lock", &format!("cluster:{nodes}"))?,
        redisson("lock", &sentinels)?,
    ];
    let mut rounds: [Rounds; 11] = Default::default();
    round(&mut peers)?;
    for _ in 0..ROUNDS {
        for (rounds, median) in rounds.iter_mut().zip(round(&mut peers)?) {
            rounds.add(median);
        }
    }

    let [
        raw,
        raw_copied,
        raw_cluster,
        ours,
        ours_copied,
        ours_cluster,
        ours_sentinel,
        redisson,
        redisson_fair,
        redisson_cluster,
        redisson_sentinel,
    ] = &rounds;
    let mut table = Table::new("topologies");
    for (who, one, copied, on_cluster, goal) in [
        ("raw", raw, Some(raw_copied), raw_cluster, None),
        (
            "leasehold",
            ours,
            Some(ours_copied),
            ours_cluster,
            Some(Goal::AtMost(1.15)),
        ),
        ("Redisson", redisson, None, redisson_cluster, None),
    ] {
        let beside = ("one server", one);
        table.add("pair, one server, p50", who, "µs", one, None);
        if let Some(copied) = copied {
            let what = ("pair, one server with a replica, p50", who, "µs");
            table.add_beside(what, copied, beside, None);
        }
        let what = ("pair, Cluster, p50", who, "µs");
        table.add_beside(what, on_cluster, beside, goal);
    }

    table.add_beside(
        ("pair, one server, p50", "Redisson, RFairLock", "µs"),
        redisson_fair,
        ("its RLock", redisson),
        None,
    );

    let what = "pair, Sentinel, p50";
    table.add(what, "Redisson", "µs", redisson_sentinel, None);
    table.add_beside(
        (what, "leasehold", "µs"),
        ours_sentinel,
        ("Redisson", redisson_sentinel),
        Some(Goal::AtMost(1.0)),
    );
    table.finish()
}

/// A peer that acquires and releases the lock `a`.
enum Peer {
    Client(Client),
    /// A client, and the kind of its lock.
    Redisson(RedissonPeer, &'static str),
}

impl Peer {
    /// Returns the time of each pair.
    fn pairs(&mut self) -> Result<Vec<u64>> {
        match self {
            Self::Client(client) => {
                let name = "a".to_owned();
                let count = PAIRS;
                let times = client.run(&Workload::Pairs { name, count })?;
                times.context("every peer supports pairs")
            }
            Self::Redisson(peer, kind) => {
                let reply = peer.request(&format!("pairs {kind} {kind} {PAIRS}"))?;
                let times = reply.split_whitespace().map(str::parse);
                times.collect::<Result<_, _>>().context(reply)
            }
        }
    }
}

fn client(peer: &str, url: &str) -> Result<Peer> {
    let client = Client::start(peer, Cpus::Split.client(), url)?;
    Ok(Peer::Client(client))
}

fn redisson(kind: &'static str, addresses: &str) -> Result<Peer> {
    let cpu = Some(Cpus::Split.client());
    let peer = RedissonPeer::start_optimised(addresses, cpu)?;
    Ok(Peer::Redisson(peer, kind))
}

pub(super) fn addresses<'a>(servers: impl Iterator<Item = &'a Redis>) -> String {
    let addresses: Vec<String> = servers
        .map(|server| format!("redis://{}", server.address()))
        .collect();
    addresses.join(",")
}

/// Lets the peers take turns, and returns the median of each.
fn round(peers: &mut [Peer]) -> Result<Vec<f64>> {
    let mut took = vec![Vec::new(); peers.len()];
    for _ in 0..TURNS {
        for (peer, took) in peers.iter_mut().zip(&mut took) {
            took.append(&mut peer.pairs()?);
        }
    }

    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        micros(permille(&times, 500))
    };
    Ok(took.into_iter().map(median).collect())
}
