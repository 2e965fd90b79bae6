//! A transaction of two updates on PostgreSQL, without and with `leasehold.check` as a statement of its own.

use anyhow::Result;
use lab_servers::Postgres;

use super::uncontended::{Measured, measure};
use crate::client::Cpus;
use crate::table::{Goal, Table};

/// The transactions of one isolation level, and the goal of the ratio.
const LEVELS: [([&str; 2], f64); 3] = [
    (
        [
            "two updates, READ COMMITTED",
            "two updates, READ COMMITTED, checked",
        ],
        1.25,
    ),
    (
        [
            "two updates, REPEATABLE READ",
            "two updates, REPEATABLE READ, checked",
        ],
        1.5,
    ),
    (
        [
            "two updates, SERIALIZABLE",
            "two updates, SERIALIZABLE, checked",
        ],
        1.5,
    ),
];
/// The transactions of each peer in a turn.
const TRANSACTIONS: usize = 100;

pub(super) fn show() -> Result<()> {
    let server = Postgres::configured(&["fsync=on", "synchronous_commit=on"]);
    let url = format!("postgres://postgres@{}/postgres", server.address());
    let mut table = Table::new("check");
    for (peers, goal) in LEVELS {
        let start = |peer| Measured::start(peer, Cpus::Split, &url);
        let mut measured = peers.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        let noise = measure(&mut measured, TRANSACTIONS)?;
        let [bare, checked] = &measured[..] else {
            unreachable!("there are two");
        };
        table.add(("P50, durable commit", peers[0], "µs"), &bare.p50, None);
        table.add_beside(
            ("P50, durable commit", peers[1], "µs"),
            &checked.p50,
            ("without the check", &bare.p50),
            Some(Goal::AtMost(goal)),
        );
        noise.add_to(&mut table, peers[0], bare);
    }
    table.finish()
}
