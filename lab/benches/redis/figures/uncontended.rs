//! Acquire and release when nobody else wants the lock: the goal is 1.10 round trips of the limit, with a token.

use anyhow::{Context, Result};

use super::{ROUNDS, micros, permille};
use crate::client::Client;
use crate::peers;
use crate::place::{self, Cpus};
use crate::table::{Goal, Rounds, Table};
use crate::task::Task;

/// A round is so many turns of each peer, so that a slow moment of the machine meets all.
const TURNS: usize = 10;
const PAIRS: usize = 200;

struct Measured {
    client: Client,
    name: String,
    p50: Rounds,
    p99: Rounds,
}

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("uncontended");
    for cpus in [Cpus::Split, Cpus::Same] {
        add(&mut table, cpus)?;
    }
    table.finish()
}

fn add(table: &mut Table, cpus: Cpus) -> Result<()> {
    let server = place::server();
    let names = ["raw".to_owned(), "ours".to_owned()].into_iter().chain(peers::others()?);
    let start = |name: String| {
        let client = Client::start(&name, cpus.client(), &server.url())?;
        anyhow::Ok(Measured { client, name, p50: Rounds::default(), p99: Rounds::default() })
    };
    let mut peers = names.map(start).collect::<Result<Vec<_>>>()?;
    for _ in 0..ROUNDS {
        round(&mut peers)?;
    }
    let (raw, others) = peers.split_first().context("the limit is the first")?;
    let cpus_name = cpus.name();
    for (what, of, goal) in
        [("p50", (|m: &Measured| m.p50.clone()) as fn(&Measured) -> Rounds, 1.10), ("p99", |m| m.p99.clone(), 1.30)]
    {
        let what = format!("{what}, {cpus_name} CPUs");
        table.add(&what, "raw", "µs", &of(raw), None);
        for peer in others {
            let goal = (peer.name == "ours").then_some(Goal::AtMost(goal));
            table.add_beside((&what, &peer.name, "µs"), &of(peer), ("raw", &of(raw)), goal);
        }
    }
    Ok(())
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
        peer.p99.add(micros(permille(&took, 990)));
    }
    Ok(())
}
