//! Acquire and release, one after the other, when no other client wants the lock.

use anyhow::{Context, Result};
use lab_servers::{Redis, Wire, ZooKeeper};

use super::{DELAY, ROUNDS, micros, p50, permille};
use crate::client::{Client, Cpus, SERVER, durable_postgres, file_url, new_masters, server};
use crate::peers::{ON_POSTGRES, ON_REDIS, ON_ZOOKEEPER};
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// The number of turns of each peer in a round.
///
/// The peers alternate, so that a slow moment of the machine affects all of them.
const TURNS: usize = 10;
/// The limit of the noise in a round. A round above it is repeated.
const NOISE_MAX: f64 = 1.3;
/// How often one round is repeated at most. The last repetition counts as it is.
const REPEATED_MAX: usize = 5;

/// The rounds of a percentile.
type RoundsOf = fn(&Measured) -> &Rounds;

const PERCENTILES: [(&str, RoundsOf); 2] = [("P50", |peer| &peer.p50), ("P99", |peer| &peer.p99)];

/// leasehold beside the bare requests or system calls and other libraries.
pub(super) fn show() -> Result<()> {
    let mut table = Table::new("uncontended");
    for (cpus, name, goal) in [
        (Cpus::Split, "Redis, split CPUs", 1.12),
        (Cpus::Same, "Redis, same CPUs", 1.32),
    ] {
        let server = server();
        let peers = start_all(&ON_REDIS, cpus, &server.url())?;
        compare(&mut table, name, peers, Some(goal))?;
    }
    let redis = server();
    let wire = Wire::to(redis.address());
    wire.delay(DELAY);
    let peers = start_all(
        &["raw", "leasehold", "rslock"],
        Cpus::Split,
        &wire.url_of("redis"),
    )?;
    compare(&mut table, "Redis, 1 ms round trip", peers, Some(1.02))?;

    let masters: [_; 5] = std::array::from_fn(|_| server());
    let addresses = masters.each_ref().map(Redis::address).join(",");
    let redlock = format!("redlock://{addresses}");
    let peers = vec![
        Measured::start("quorum", Cpus::Split, &redlock)?,
        Measured::start("leasehold", Cpus::Split, &new_masters(&redlock))?,
        Measured::start("rslock", Cpus::Split, &redlock)?,
    ];
    compare(&mut table, "five masters", peers, None)?;

    let server = ZooKeeper::setup()
        .config("maxSessionTimeout", "600000")
        .pinned(SERVER)
        .start();
    let peers = start_all(&ON_ZOOKEEPER, Cpus::Split, &server.url())?;
    compare(&mut table, "ZooKeeper", peers, Some(1.1))?;

    let (_server, url) = durable_postgres();
    let peers = start_all(&ON_POSTGRES, Cpus::Split, &url)?;
    compare(&mut table, "PostgreSQL, durable commits", peers, None)?;

    let folder = tempfile::tempdir()?;
    let path = folder.path().display().to_string();
    let peers = vec![
        Measured::start("flock", Cpus::Split, &path)?,
        Measured::start("leasehold", Cpus::Split, &file_url(folder.path()))?,
        Measured::start("leasehold_memory", Cpus::Split, "")?,
    ];
    compare(&mut table, "one machine", peers, Some(7.0))?;
    table.finish()
}

fn start_all(peers: &[&'static str], cpus: Cpus, url: &str) -> Result<Vec<Measured>> {
    let start = |peer: &&'static str| Measured::start(peer, cpus, url);
    peers.iter().map(start).collect()
}

/// Adds the figures of peers, of which the first is the limit of the others. The goal is that of
/// the median of `leasehold`.
fn compare(
    table: &mut Table,
    name: &str,
    mut peers: Vec<Measured>,
    goal: Option<f64>,
) -> Result<()> {
    let noise = measure(&mut peers, 200)?;

    let (limit, others) = peers.split_first().context("the limit is the first peer")?;
    for ((percentile, rounds_of), goal) in PERCENTILES.into_iter().zip([goal, None]) {
        let what = format!("{percentile}, {name}");
        let beside = (limit.name, rounds_of(limit));
        table.add((&what, limit.name, "µs"), rounds_of(limit), None);
        for peer in others {
            let goal = goal.filter(|_| peer.name == "leasehold").map(Goal::AtMost);
            table.add_beside((&what, peer.name, "µs"), rounds_of(peer), beside, goal);
        }
    }
    noise.add_to(table, name, limit);
    Ok(())
}

/// A peer, and the times of its pairs.
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) p50: Rounds,
    p99: Rounds,
    client: Client,
}

impl Measured {
    pub(super) fn start(peer: &'static str, cpus: Cpus, url: &str) -> Result<Self> {
        Ok(Self {
            name: peer,
            p50: Rounds::default(),
            p99: Rounds::default(),
            client: Client::start(peer, cpus, url)?,
        })
    }
}

/// How much the machine disturbed the first peer.
#[derive(Debug, Default)]
pub(super) struct Noise {
    /// For each round, the median of the slowest turn relative to that of the fastest turn.
    rounds: Rounds,
    repeated: usize,
}

impl Noise {
    /// Adds a line below the figures that it concerns.
    pub(super) fn add_to(&self, table: &mut Table, what: &str, first: &Measured) {
        let repeated = self.repeated;
        let what = format!("noise, {what}: slowest turn / fastest, {repeated} rounds repeated");
        table.add((&what, first.name, "×"), &self.rounds, None);
    }
}

/// Measures all rounds of all peers, with `pairs` pairs in each turn.
pub(super) fn measure(peers: &mut [Measured], pairs: usize) -> Result<Noise> {
    let mut noise = Noise::default();
    // The first round does not count, because Java's compiler runs in it.
    Round::measure(peers, pairs)?;

    for _ in 0..ROUNDS {
        let mut round = Round::measure(peers, pairs)?;
        for _ in 0..REPEATED_MAX {
            if round.noise <= NOISE_MAX {
                break;
            }
            noise.repeated += 1;
            round = Round::measure(peers, pairs)?;
        }

        noise.rounds.add(round.noise);
        for (peer, mut took) in peers.iter_mut().zip(round.took) {
            took.sort_unstable();
            peer.p50.add(micros(permille(&took, 500)));
            peer.p99.add(micros(permille(&took, 990)));
        }
    }
    Ok(noise)
}

/// One round of all peers.
struct Round {
    /// The times of each peer.
    took: Vec<Vec<u64>>,
    noise: f64,
}

impl Round {
    pub(super) fn measure(peers: &mut [Measured], pairs: usize) -> Result<Self> {
        let mut took = vec![Vec::new(); peers.len()];
        let mut medians_of_first = Vec::new();
        let task = Workload::Pairs {
            name: "a".to_owned(),
            count: pairs,
        };

        for _ in 0..TURNS {
            for (number, peer) in peers.iter_mut().enumerate() {
                let times = peer.client.run(&task)?;
                if number == 0 {
                    medians_of_first.push(p50(times.clone()));
                }
                took[number].extend(times);
            }
        }

        let slowest = medians_of_first.iter().copied().fold(f64::MIN, f64::max);
        let fastest = medians_of_first.iter().copied().fold(f64::MAX, f64::min);
        Ok(Self {
            took,
            noise: slowest / fastest,
        })
    }
}
