//! Acquire and release when no other client wants the lock.
//!
//! The goal is 1.10 round trips of the limit, including a token.

use anyhow::{Context, Result};

use super::pairs::{Measured, measure};
use crate::cpus::{self, Cpus};
use crate::peers;
use crate::table::{Goal, Rounds, Table};

const PAIRS: usize = 200;

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("uncontended");
    for cpus in [Cpus::Split, Cpus::Same] {
        add(&mut table, cpus)?;
    }
    table.finish()
}

fn add(table: &mut Table, cpus: Cpus) -> Result<()> {
    let server = cpus::server();
    let names = ["raw".to_owned(), "leasehold".to_owned()]
        .into_iter()
        .chain(peers::others()?);
    let start = |name: String| Measured::start(&name, &name, cpus.client(), &server.url());
    let mut peers = names.map(start).collect::<Result<Vec<_>>>()?;
    let noise = measure(&mut peers, PAIRS)?;

    let (raw, others) = peers.split_first().context("the limit is the first peer")?;
    let cpus_name = cpus.name();
    for (what, of, goal) in [
        (
            "p50",
            (|m: &Measured| m.p50.clone()) as fn(&Measured) -> Rounds,
            1.10,
        ),
        ("p99", |m| m.p99.clone(), 1.30),
    ] {
        let what = format!("{what}, {cpus_name} CPUs");
        table.add(&what, "raw", "µs", &of(raw), None);
        for peer in others {
            let goal = (peer.name == "leasehold").then_some(Goal::AtMost(goal));
            table.add_beside(
                (&what, &peer.name, "µs"),
                &of(peer),
                ("raw", &of(raw)),
                goal,
            );
        }
    }

    noise.add_to(table, &format!("noise, {cpus_name} CPUs"), raw);
    Ok(())
}
