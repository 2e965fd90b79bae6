//! Peers that acquire and release in turns, when nobody else wants the lock.

use anyhow::{Context, Result};

use super::{ROUNDS, micros, permille};
use crate::client::Client;
use crate::table::Rounds;
use crate::workload::Workload;

/// A round is so many turns of each peer, so that a slow moment of the machine meets all.
const TURNS: usize = 10;

/// A peer, and what its pairs took.
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

/// All rounds of all peers, so many pairs in a turn.
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
            took.append(&mut pairs.context("every peer knows pairs")?);
        }
    }
    for (peer, mut took) in peers.iter_mut().zip(took) {
        took.sort_unstable();
        peer.p50.add(micros(permille(&took, 500)));
        peer.p99.add(micros(permille(&took, 990)));
    }
    Ok(())
}
