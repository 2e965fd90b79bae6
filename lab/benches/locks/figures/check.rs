//! A transaction of two updates on PostgreSQL, alone, with `leasehold.check` as a statement of its
//! own, and with a locked row, as programs do that compare a token in the same transaction.

use anyhow::Result;

use super::uncontended::{Measured, measure};
use crate::client::{Cpus, durable_postgres};
use crate::table::{Goal, Table};

/// The transactions of one isolation level: alone, with the check, and with what programs do
/// without leasehold. And the goal of the ratio.
const LEVELS: [([&str; 3], f64); 3] = [
    (
        [
            "two updates, READ COMMITTED",
            "two updates, READ COMMITTED, checked",
            "two updates, READ COMMITTED, row locked",
        ],
        1.25,
    ),
    (
        [
            "two updates, REPEATABLE READ",
            "two updates, REPEATABLE READ, checked",
            "two updates, REPEATABLE READ, row locked",
        ],
        1.5,
    ),
    (
        [
            "two updates, SERIALIZABLE",
            "two updates, SERIALIZABLE, checked",
            "two updates, SERIALIZABLE, row locked",
        ],
        1.5,
    ),
];
/// The transactions of each peer in a turn.
const TRANSACTIONS: usize = 100;

pub(super) fn show() -> Result<()> {
    let (_server, url) = durable_postgres();
    let mut table = Table::new("check");
    for (peers, goal) in LEVELS {
        let start = |peer| Measured::start(peer, Cpus::Split, &url);
        let mut measured = peers.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        let noise = measure(&mut measured, TRANSACTIONS)?;
        let [bare, others @ ..] = &measured[..] else {
            unreachable!("there are three");
        };
        table.add(("P50, durable commit", bare.name, "µs"), &bare.p50, None);
        for (other, goal) in others.iter().zip([Some(Goal::AtMost(goal)), None]) {
            table.add_beside(
                ("P50, durable commit", other.name, "µs"),
                &other.p50,
                ("without it", &bare.p50),
                goal,
            );
        }
        noise.add_to(&mut table, peers[0], bare);
    }
    table.finish()
}
