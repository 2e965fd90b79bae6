//! Peers that acquire and release one after the other, when no other client wants the lock.

use anyhow::{Context, Result};

use super::{ROUNDS, micros, permille};
use crate::client::Client;
use crate::table::Rounds;
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

/// Measures all rounds of all peers, with `pairs` pairs in each turn.
pub(super) fn measure(peers: &mut [Measured], pairs: usize) -> Result<()> {
    (0..ROUNDS).try_for_each(|_| round(peers, pairs))
}

fn round(peers: &mut [Measured], pairs: usize) -> Result<()> {
    let mut took = vec![Vec::new(); peers.len()];
    for _ in 0..TURNS {
        for (peer, took) in peers.iter_mut().zip(&mut took) {
            let pairs = peer.client.run(&Workload::Pairs {
                name: "a".to_owned(),
                count: pairs,
            })?;
            took.append(&mut pairs.context("every peer supports pairs")?);
        }
    }

    for (peer, mut took) in peers.iter_mut().zip(took) {
        took.sort_unstable();
        peer.p50.add(micros(permille(&took, 500)));
        peer.p99.add(micros(permille(&took, 990)));
    }

    Ok(())
}
