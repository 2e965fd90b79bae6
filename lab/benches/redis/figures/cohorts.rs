//! The acquisitions of 64 tasks of one process that contend for one lock, with and without a
//! cohort, on one machine and with a round trip of 1 ms. Also how long one of two such processes
//! waits for the other.

use std::time::Duration;

use anyhow::Result;
use lab_servers::Wire;

use super::{ROUNDS, micros};
use crate::cpus::{self, Cpus};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};

/// The delay of each direction.
const DELAY: Duration = Duration::from_micros(500);
const CONTEST: Contest = Contest {
    threads: 64,
    hold: Duration::ZERO,
    think: Duration::ZERO,
    lasts: Duration::from_secs(2),
};

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let wire = Wire::to(server.address());
    wire.delay(DELAY);

    let mut table = Table::new("cohorts");
    rates(&mut table, "on one machine", &server.url(), 10.0)?;
    rates(&mut table, "1 ms round trip", &wire.url_of("redis"), 100.0)?;
    absences(&mut table, &server.url())?;
    table.finish()
}

/// Adds the acquisitions per millisecond.
fn rates(table: &mut Table, network: &str, url: &str, goal: f64) -> Result<()> {
    let mut direct = cpus::clients("leasehold", 1, Cpus::Split, url)?;
    let mut cohort = cpus::clients("leasehold_cohort", 1, Cpus::Split, url)?;
    let mut rounds: [Rounds; 2] = Default::default();
    for _ in 0..ROUNDS {
        let [direct_rate, cohort_rate] = &mut rounds;
        direct_rate.add(CONTEST.run(&mut direct)?.rate());
        cohort_rate.add(CONTEST.run(&mut cohort)?.rate());
    }

    let [direct, cohort] = &rounds;
    let what = format!("acquisitions, 64 tasks of a process, {network}");
    table.add(&what, "leasehold", "/ms", direct, None);
    table.add_beside(
        (&what, "leasehold, cohort", "/ms"),
        cohort,
        ("leasehold", direct),
        Some(Goal::AtLeast(goal)),
    );
    Ok(())
}

/// Adds the longest time for which one of two processes has no grant, beside the longest time for
/// which the other one passes its hold on.
fn absences(table: &mut Table, url: &str) -> Result<()> {
    let mut two = cpus::clients("leasehold_cohort", 2, Cpus::Split, url)?;
    let mut rounds: [Rounds; 2] = Default::default();
    for _ in 0..ROUNDS {
        let [absent, turn] = &mut rounds;
        let spans = CONTEST.run(&mut two)?;
        absent.add(micros(spans.longest_absence()));
        turn.add(micros(spans.longest_turn()));
    }

    let [absent, turn] = &rounds;
    let who = "leasehold, cohort";
    table.add("longest turn of one of 2 processes", who, "µs", turn, None);
    table.add_beside(
        ("longest absence of one of 2 processes", who, "µs"),
        absent,
        ("turn of the other", turn),
        None,
    );
    Ok(())
}
