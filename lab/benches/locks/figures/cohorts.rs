//! The acquisitions of 64 tasks of one process that contend for one lock, with and without a
//! cohort, on one machine and with a round trip of 1 ms.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Wire;

use super::{DELAY, ROUNDS};
use crate::client::{clients, server};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};

const CONTEST: Contest = Contest {
    threads: 64,
    lasts: Duration::from_secs(2),
};

pub(super) fn show() -> Result<()> {
    let server = server();
    let wire = Wire::to(server.address());
    wire.delay(DELAY);

    let mut table = Table::new("cohorts");
    rates(&mut table, "on one machine", &server.url(), 10.0)?;
    rates(&mut table, "1 ms round trip", &wire.url_of("redis"), 100.0)?;
    table.finish()
}

/// Adds the acquisitions per millisecond.
fn rates(table: &mut Table, network: &str, url: &str, goal: f64) -> Result<()> {
    let mut direct = clients("leasehold", 1, url)?;
    let mut cohort = clients("leasehold_cohort", 1, url)?;
    let mut direct_rate = Rounds::default();
    let mut cohort_rate = Rounds::default();
    for _ in 0..ROUNDS {
        direct_rate.add(CONTEST.run(&mut direct)?.rate());
        cohort_rate.add(CONTEST.run(&mut cohort)?.rate());
    }

    let what = format!("acquisitions, 64 tasks of a process, {network}");
    table.add((&what, "leasehold", "/ms"), &direct_rate, None);
    table.add_beside(
        (&what, "leasehold, cohort", "/ms"),
        &cohort_rate,
        ("leasehold", &direct_rate),
        Some(Goal::AtLeast(goal)),
    );
    Ok(())
}
