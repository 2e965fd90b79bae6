//! Peers that acquire and release one after the other, when no other client wants the lock.

use anyhow::{Context, Result};

use super::{ROUNDS, micros, p50, permille};
use crate::client::Client;
use crate::table::{Rounds, Table};
use crate::workload::Workload;

/// The number of turns of each peer in a round.
///
/// The peers alternate, so that a slow moment of the machine affects all of them.
const TURNS: usize = 10;

/// A peer, and the times of its pairs.
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) p50: Rounds,
    pub(super) p99: Rounds,
    client: Client,
}

impl Measured {
    pub(super) fn start(name: &str, peer: &str, cpu: usize, url: &str) -> Result<Self> {
        let client = Client::start(peer, cpu, url)?;
        Ok(Self {
            name: name.to_owned(),
            p50: Rounds::default(),
            p99: Rounds::default(),
            client,
        })
    }
}

/// The limit of the noise in a round. A round above it is repeated.
const NOISE_MAX: f64 = 1.3;
/// How often one round is repeated at most. The last repetition counts as it is.
const REPEATED_MAX: usize = 5;

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
        let what = format!("{what}: slowest turn / fastest, {repeated} rounds repeated");

        table.add(&what, &first.name, "×", &self.rounds, None);
    }
}

/// Measures all rounds of all peers, with `pairs` pairs in each turn.
pub(super) fn measure(peers: &mut [Measured], pairs: usize) -> Result<Noise> {
    let mut noise = Noise::default();

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

        for _ in 0..TURNS {
            for (number, (peer, took)) in peers.iter_mut().zip(&mut took).enumerate() {
                let pairs = peer.client.run(&Workload::Pairs {
                    name: "a".to_owned(),
                    count: pairs,
                })?;
                let mut pairs = pairs.context("every peer supports pairs")?;
                if number == 0 {
                    medians_of_first.push(p50(pairs.clone()));
                }
                took.append(&mut pairs);
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
