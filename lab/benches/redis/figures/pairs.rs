//! Acquire and release, one after the other, when no other client wants the lock.

use std::time::Duration;

use anyhow::{Context, Result};
use lab_servers::{Redis, Wire};

use super::{ROUNDS, micros, p50, permille};
use crate::client::{Client, Cpus, server};
use crate::peers::OTHERS;
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
/// The delay of each direction on a simulated network.
const DELAY: Duration = Duration::from_micros(500);

/// leasehold beside the raw requests and other libraries. The goal is 1.10 round trips of the
/// limit, including a token.
pub(super) fn uncontended() -> Result<()> {
    let mut table = Table::new("uncontended");
    for (cpus, name) in [(Cpus::Split, "split CPUs"), (Cpus::Same, "same CPUs")] {
        let server = server();
        let mut peers = Vec::new();
        for peer in ["raw", "leasehold"].into_iter().chain(OTHERS) {
            peers.push(Measured::start(peer, peer, cpus, &server.url())?);
        }
        let noise = measure(&mut peers, 200)?;

        let (raw, others) = peers.split_first().context("the limit is the first peer")?;
        for (percentile, goal) in [(Percentile::P50, 1.10), (Percentile::P99, 1.30)] {
            let what = format!("{percentile:?}, {name}");
            let limit = raw.rounds(percentile);
            table.add((&what, "raw", "µs"), limit, None);
            for peer in others {
                let goal = (peer.name == "leasehold").then_some(Goal::AtMost(goal));
                let rounds = peer.rounds(percentile);
                table.add_beside((&what, &peer.name, "µs"), rounds, ("raw", limit), goal);
            }
        }
        noise.add_to(&mut table, name, raw);
    }
    table.finish()
}

/// Five masters, which share a CPU of the machine, or are behind wires on which a round trip takes
/// 1 ms. The goal is one and a half times leasehold's own pair on one master.
pub(super) fn redlock() -> Result<()> {
    let masters: Vec<Redis> = (0..5).map(|_| server()).collect();
    let mut wires = Vec::new();
    for master in &masters {
        let wire = Wire::to(master.address());
        wire.delay(DELAY);
        wires.push(wire);
    }

    let mut table = Table::new("redlock");
    let near: Vec<String> = masters.iter().map(Redis::address).collect();
    let far: Vec<String> = wires.iter().map(Wire::address).collect();
    for (what, hosts, pairs) in [("P50", near, 100), ("P50, 1 ms round trip", far, 20)] {
        let one = format!("redis://{}", hosts[0]);
        let all = hosts.join(",");
        let each = all.replace(',', ",redis://");
        let peers = [
            ("leasehold, one master", "leasehold", one.clone(), None),
            ("raw, one master", "raw", one.clone(), None),
            (
                "dialect=plain, one master",
                "leasehold",
                format!("{one}?dialect=plain"),
                None,
            ),
            (
                "redlock",
                "leasehold",
                format!("redlock://{all}?quarantine=off"),
                Some(1.5),
            ),
            (
                "dialect=classic",
                "leasehold",
                format!("redlock://{all}?dialect=classic"),
                None,
            ),
            (
                "rslock, five masters",
                "rslock",
                format!("redis://{each}"),
                None,
            ),
        ];
        compare(&mut table, what, &peers, pairs)?;
    }
    table.finish()
}

/// Adds the medians of some peers, each with its name in the table, its URL, and its goal. The
/// first of them is the limit.
fn compare(
    table: &mut Table,
    what: &str,
    peers: &[(&str, &str, String, Option<f64>)],
    pairs: usize,
) -> Result<()> {
    let mut measured = Vec::new();
    for (name, peer, url, _) in peers {
        measured.push(Measured::start(name, peer, Cpus::Split, url)?);
    }
    let noise = measure(&mut measured, pairs)?;

    let limit = &measured[0];
    for (peer, (_, _, _, goal)) in measured.iter().zip(peers) {
        table.add_beside(
            (what, &peer.name, "µs"),
            &peer.p50,
            (&limit.name, &limit.p50),
            goal.map(Goal::AtMost),
        );
    }
    noise.add_to(table, what, limit);
    Ok(())
}

/// A peer, and the times of its pairs.
struct Measured {
    name: String,
    p50: Rounds,
    p99: Rounds,
    client: Client,
}

#[derive(Clone, Copy, Debug)]
enum Percentile {
    P50,
    P99,
}

impl Measured {
    fn start(name: &str, peer: &str, cpus: Cpus, url: &str) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            p50: Rounds::default(),
            p99: Rounds::default(),
            client: Client::start(peer, cpus, url)?,
        })
    }

    fn rounds(&self, percentile: Percentile) -> &Rounds {
        match percentile {
            Percentile::P50 => &self.p50,
            Percentile::P99 => &self.p99,
        }
    }
}

/// How much the machine disturbed the first peer.
#[derive(Debug, Default)]
struct Noise {
    /// For each round, the median of the slowest turn relative to that of the fastest turn.
    rounds: Rounds,
    repeated: usize,
}

impl Noise {
    /// Adds a line below the figures that it concerns.
    fn add_to(&self, table: &mut Table, what: &str, first: &Measured) {
        let repeated = self.repeated;
        let what = format!("noise, {what}: slowest turn / fastest, {repeated} rounds repeated");
        table.add((&what, &first.name, "×"), &self.rounds, None);
    }
}

/// Measures all rounds of all peers, with `pairs` pairs in each turn.
fn measure(peers: &mut [Measured], pairs: usize) -> Result<Noise> {
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
    fn measure(peers: &mut [Measured], pairs: usize) -> Result<Self> {
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
