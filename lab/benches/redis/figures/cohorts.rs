//! The acquisitions of 64 tasks of one process that contend for one lock, with and without a
//! cohort; and the longest wait in two such processes.

use std::time::Duration;

use anyhow::Result;

use super::{ROUNDS, float, permille};
use crate::cpus::{self, Cpus};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};

const CONTEST: Contest = Contest {
    threads: 64,
    hold: Duration::ZERO,
    think: Duration::ZERO,
    lasts: Duration::from_secs(2),
};

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let mut direct = cpus::clients("leasehold", 1, Cpus::Split, &server.url())?;
    let mut cohort = cpus::clients("leasehold_cohort", 1, Cpus::Split, &server.url())?;
    let mut two = cpus::clients("leasehold_cohort", 2, Cpus::Split, &server.url())?;

    let mut rounds: [Rounds; 3] = Default::default();
    for _ in 0..ROUNDS {
        let [direct_rate, cohort_rate, longest] = &mut rounds;
        direct_rate.add(CONTEST.run(&mut direct)?.rate());
        cohort_rate.add(CONTEST.run(&mut cohort)?.rate());
        let mut waits = CONTEST.run(&mut two)?.waits();
        waits.sort_unstable();
        let p50 = float(permille(&waits, 500));
        longest.add(float(permille(&waits, 1000)) / p50);
    }

    let [direct, cohort, longest] = &rounds;
    let mut table = Table::new("cohorts");
    let what = "acquisitions, 64 tasks of a process";
    table.add(what, "leasehold", "/ms", direct, None);
    table.add_beside(
        (what, "leasehold, cohort", "/ms"),
        cohort,
        ("leasehold", direct),
        Some(Goal::AtLeast(10.0)),
    );
    table.add(
        "longest wait / p50, 2 processes",
        "leasehold, cohort",
        "",
        longest,
        None,
    );
    table.finish()
}
