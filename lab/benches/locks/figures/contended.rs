//! How often 16 clients in two processes acquire one lock of PostgreSQL, all with durable commits.
//!
//! A lock of a session writes nothing, so its rate shows what the commits cost.

use std::time::Duration;

use anyhow::Result;

use super::ROUNDS;
use crate::client::{Client, clients, durable_postgres};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};

const PEERS: [&str; 5] = [
    "lease_table",
    "leasehold",
    "shedlock",
    "pg_advisory_lock",
    "sqlx",
];
const PROCESSES: usize = 2;
const CONTEST: Contest = Contest {
    threads: 16 / PROCESSES,
    lasts: Duration::from_secs(2),
};

pub(super) fn show() -> Result<()> {
    let (_server, url) = durable_postgres();
    let start = |peer| Ok((peer, clients(peer, PROCESSES, &url)?, Rounds::default()));
    let mut peers: Vec<(&str, Vec<Client>, Rounds)> =
        PEERS.into_iter().map(start).collect::<Result<_>>()?;
    for round in 0..=ROUNDS {
        for (_, clients, rates) in &mut peers {
            let rate = CONTEST.run(clients)?.rate();
            // The first round does not count, because sessions connect in it.
            if round > 0 {
                rates.add(rate);
            }
        }
    }

    let mut table = Table::new("contended");
    let what = "acquisitions, 16 clients, PostgreSQL, durable commits";
    let (_, _, lease_table) = &peers[0];
    table.add((what, PEERS[0], "/ms"), lease_table, None);
    for (peer, _, rates) in &peers[1..] {
        let goal = (*peer == "leasehold").then_some(Goal::AtLeast(1.0));
        table.add_beside((what, peer, "/ms"), rates, (PEERS[0], lease_table), goal);
    }
    table.finish()
}
