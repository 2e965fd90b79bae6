//! Acquire and release on five masters when nobody else wants the lock: the goal is one and a half times our own pair on one.

use anyhow::{Context, Result};
use lab_servers::Redis;

use super::{ROUNDS, micros, permille};
use crate::client::Client;
use crate::place::{self, Cpus};
use crate::table::{Goal, Rounds, Table};
use crate::task::Task;

/// A round is so many turns of each, so that a slow moment of the machine meets all.
const TURNS: usize = 10;
const PAIRS: usize = 100;

struct Measured {
    client: Client,
    name: &'static str,
    p50: Rounds,
}

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("redlock");
    let masters: Vec<Redis> = (0..5).map(|_| place::server()).collect();
    let urls: Vec<String> = masters.iter().map(Redis::url).collect();
    let hosts: Vec<String> = masters.iter().map(Redis::address).collect();
    let (alone, all) = (&urls[0], urls.join(","));
    let fenced = format!("redlock://{}?quarantine=off", hosts.join(","));
    let classic = format!("redlock://{}?dialect=classic", hosts.join(","));
    let plain = format!("{alone}?dialect=plain");
    let peers = [
        ("raw, one master", "raw", alone),
        ("ours, one master", "ours", alone),
        ("ours, dialect=plain, one master", "ours", &plain),
        ("raw, quorum of five", "quorum", &all),
        ("ours, redlock", "ours", &fenced),
        ("ours, dialect=classic", "ours", &classic),
        ("rslock, five masters", "rslock", &all),
    ];
    let start = |(name, peer, url): (&'static str, &str, &String)| {
        let client = Client::start(peer, Cpus::Split.client(), url)?;
        anyhow::Ok(Measured { client, name, p50: Rounds::default() })
    };
    let mut peers = peers.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    for _ in 0..ROUNDS {
        round(&mut peers)?;
    }
    let one = peers[1].p50.clone();
    for peer in &peers {
        let goal = (peer.name == "ours, redlock").then_some(Goal::AtMost(1.5));
        table.add_beside(("p50", peer.name, "µs"), &peer.p50, ("ours, one master", &one), goal);
    }
    table.finish()
}

fn round(peers: &mut [Measured]) -> Result<()> {
    let mut took = vec![Vec::new(); peers.len()];
    for _ in 0..TURNS {
        for (peer, took) in peers.iter_mut().zip(&mut took) {
            let pairs = peer.client.run(&Task::Pairs { name: "a".to_owned(), count: PAIRS })?;
            took.append(&mut pairs.context("every peer knows pairs")?);
        }
    }
    for (peer, mut took) in peers.iter_mut().zip(took) {
        took.sort_unstable();
        peer.p50.add(micros(permille(&took, 500)));
    }
    Ok(())
}
