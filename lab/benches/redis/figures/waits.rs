//! The spread of the waits of 256 threads that contend for the same lock.
//!
//! If every thread is granted in the order of arrival, all threads wait for the same time.

use std::time::Duration;

use anyhow::Result;

use super::{ROUNDS, float, micros, permille};
use crate::cpus::{self, Cpus};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};

const CONTEST: Contest = Contest {
    threads: 128,
    hold: Duration::ZERO,
    think: Duration::ZERO,
    lasts: Duration::from_secs(3),
};

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let mut leasehold = cpus::clients("leasehold", 2, Cpus::Split, &server.url())?;
    let mut rounds: [Rounds; 4] = Default::default();
    for _ in 0..ROUNDS {
        let hold_spans = CONTEST.run(&mut leasehold)?;
        let mut waits = hold_spans.waits();
        waits.sort_unstable();
        let p50 = float(permille(&waits, 500));
        let [half, p99, max, rate] = &mut rounds;
        half.add(micros(permille(&waits, 500)) / 1e3);
        p99.add(float(permille(&waits, 990)) / p50);
        max.add(float(permille(&waits, 1000)) / p50);
        rate.add(hold_spans.rate());
    }

    let [p50, p99, max, rate] = &rounds;
    let mut table = Table::new("waits");
    table.add("wait, 256 waiters, p50", "leasehold", "ms", p50, None);
    table.add(
        "wait, 256 waiters, p99 / p50",
        "leasehold",
        "",
        p99,
        Some(Goal::AtMost(1.2)),
    );
    table.add(
        "wait, 256 waiters, longest / p50",
        "leasehold",
        "",
        max,
        Some(Goal::AtMost(1.3)),
    );
    table.add("acquisitions, 256 waiters", "leasehold", "/ms", rate, None);
    table.finish()
}
