//! Acquire and release, one after the other, when no other client wants the lock.

use anyhow::{Context, Result};
use lab_servers::Postgres;

use super::{ROUNDS, micros, p50, permille};
use crate::client::{Client, Cpus, file_url, server};
use crate::peers::{ON_POSTGRES, ON_REDIS};
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

/// The percentiles, with the goals of leasehold's ratios on Redis.
const PERCENTILES: [(&str, RoundsOf, f64); 2] = [
    ("P50", |peer| &peer.p50, 1.10),
    ("P99", |peer| &peer.p99, 1.30),
];

/// leasehold beside the bare requests or system calls and other libraries. The goal on Redis is 1.10
/// round trips of the limit, including a token.
pub(super) fn show() -> Result<()> {
    let mut table = Table::new("uncontended");
    for (cpus, name) in [(Cpus::Split, "split CPUs"), (Cpus::Same, "same CPUs")] {
        let server = server();
        let url = server.url();
        let start = |peer| Measured::start(peer, cpus, &url);
        let peers = ON_REDIS.into_iter().map(start).collect::<Result<_>>()?;
        compare(
            &mut table,
            name,
            peers,
            PERCENTILES.map(|(_, _, goal)| Some(goal)),
        )?;
    }

    // leasehold's grants are durable, whatever the role says.
    let server = Postgres::configured(&["fsync=on", "synchronous_commit=on"]);
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let start = |peer| Measured::start(peer, Cpus::Split, &url);
    let peers = ON_POSTGRES.into_iter().map(start).collect::<Result<_>>()?;
    compare(
        &mut table,
        "PostgreSQL, durable commits",
        peers,
        [None, None],
    )?;

    let folder = tempfile::tempdir()?;
    let path = folder.path().display().to_string();
    let peers = vec![
        Measured::start("flock", Cpus::Split, &path)?,
        Measured::start("leasehold", Cpus::Split, &file_url(folder.path()))?,
        Measured::start("leasehold_memory", Cpus::Split, "")?,
    ];
    compare(&mut table, "one machine", peers, [Some(8.0), None])?;
    table.finish()
}

/// Adds the figures of peers, of which the first is the limit of the others. The goals are those of
/// `leasehold`, one for each percentile.
fn compare(
    table: &mut Table,
    name: &str,
    mut peers: Vec<Measured>,
    goals: [Option<f64>; 2],
) -> Result<()> {
    let noise = measure(&mut peers, 200)?;

    let (limit, others) = peers.split_first().context("the limit is the first peer")?;
    for ((percentile, rounds_of, _), goal) in PERCENTILES.into_iter().zip(goals) {
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
