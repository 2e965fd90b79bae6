//! Acquire and release on one server, on the master that sentinels name, and on a cluster.
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
    let cluster = Cluster::of(&setup());
    let group = Sentinels::of(&setup(), &setup());
    let single_address = format!("redis://{}", single.address());
    let nodes = addresses((0..3).map(|number| cluster.node(number)));
    let sentinels = addresses((0..3).map(|number| group.sentinel(number)));

    let mut peers = [
        ours(&single.url())?,
        ours(&cluster.url())?,
        ours(&group.url())?,
        Peer::Redisson(RedissonPeer::start_optimised(&single_address)?),
        Peer::Redisson(RedissonPeer::start_optimised(&format!("cluster:{nodes}"))?),
        Peer::Redisson(RedissonPeer::start_optimised(&sentinels)?),
    ];
    let mut rounds: [Rounds; 6] = Default::default();
    round(&mut peers)?;
    for _ in 0..ROUNDS {
        for (rounds, median) in rounds.iter_mut().zip(round(&mut peers)?) {
            rounds.add(median);
        }
    }

    let [
        one,
        on_cluster,
        on_sentinel,
        redisson,
        redisson_cluster,
        redisson_sentinel,
    ] = &rounds;
    let mut table = Table::new("topologies");
    table.add("pair, one server, p50", "leasehold", "µs", one, None);
    table.add_beside(
        ("pair, Cluster, p50", "leasehold", "µs"),
        on_cluster,
        ("leasehold on one server", one),
        Some(Goal::AtMost(1.15)),
    );
    table.add("pair, one server, p50", "Redisson", "µs", redisson, None);
    table.add_beside(
        ("pair, Cluster, p50", "Redisson", "µs"),
        redisson_cluster,
        ("Redisson on one server", redisson),
        None,
    );
    let what = "pair, Sentinel, p50";
    table.add(what, "Redisson", "µs", redisson_sentinel, None);
    table.add_beside(
        (what, "leasehold", "µs"),
        on_sentinel,
        ("Redisson", redisson_sentinel),
        Some(Goal::AtMost(1.0)),
    );
    table.finish()
}

/// A peer that acquires and releases the lock `a`.
enum Peer {
    Leasehold(Client),
    Redisson(RedissonPeer),
}

impl Peer {
    /// Returns the time of each pair.
    fn pairs(&mut self) -> Result<Vec<u64>> {
        match self {
            Self::Leasehold(client) => {
                let name = "a".to_owned();
                let count = PAIRS;
                let times = client.run(&Workload::Pairs { name, count })?;
                times.context("leasehold supports pairs")
            }
            Self::Redisson(peer) => {
                let reply = peer.request(&format!("pairs lock a {PAIRS}"))?;
                let times = reply.split_whitespace().map(str::parse);
                times.collect::<Result<_, _>>().context(reply)
            }
        }
    }
}

fn ours(url: &str) -> Result<Peer> {
    let client = Client::start("leasehold", Cpus::Split.client(), url)?;
    Ok(Peer::Leasehold(client))
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
