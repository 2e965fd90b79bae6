//! The time of a hand-over to another process, when a round trip takes 1 ms.
//!
//! The time begins when the holder begins to release. It ends when the next holder, in another
//! process, has received its grant. The limit is one message by way of the server. A library that
//! sends another request after its wake-up needs two.

use std::time::Duration;

use anyhow::{Result, bail};
use lab_servers::Wire;

use super::{ROUNDS, micros, permille};
use crate::client::{Client, clients, server};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// The delay of each direction.
const DELAY: Duration = Duration::from_micros(500);
const MESSAGES: usize = 1_000;
/// The name of the limit in the table.
const HOP: &str = "PUBLISH to another process";
const CONTEST: Contest = Contest {
    threads: 8,
    lasts: Duration::from_secs(2),
};
/// The percentiles in thousandths, with the goals of their ratios.
const SHOWN: [(usize, &str, f64); 2] = [(500, "p50", 1.05), (990, "p99", 1.2)];

pub(super) fn show() -> Result<()> {
    let server = server();
    let wire = Wire::to(server.address());
    wire.delay(DELAY);

    let url = wire.url_of("redis");
    let mut raw = clients("raw", 2, &url)?;
    let mut leasehold = clients("leasehold", 2, &url)?;
    let mut hop: [Rounds; 2] = Default::default();
    let mut hand_over: [Rounds; 2] = Default::default();
    for _ in 0..ROUNDS {
        add(hops(&mut raw)?, &mut hop);
        add(
            CONTEST.run(&mut leasehold)?.hand_overs_across(),
            &mut hand_over,
        );
    }

    let mut table = Table::new("handover");
    for (number, (_, percentile, goal)) in SHOWN.into_iter().enumerate() {
        let what = format!("hand-over, 1 ms round trip, {percentile}");
        table.add((&what, HOP, "µs"), &hop[number], None);
        table.add_beside(
            (&what, "leasehold", "µs"),
            &hand_over[number],
            (HOP, &hop[number]),
            Some(Goal::AtMost(goal)),
        );
    }
    table.finish()
}

/// Measures the time that messages take from one process to another.
fn hops(raw: &mut [Client]) -> Result<Vec<u64>> {
    let [sender, receiver] = raw else {
        bail!("a message needs two processes")
    };
    receiver.run(&Workload::Subscribe)?;
    receiver.begin(&Workload::Receive { count: MESSAGES })?;

    let sent = sender.run(&Workload::Publish {
        count: MESSAGES,
        gap_micros: 100,
    })?;
    let came = receiver.end()?;
    Ok(sent
        .iter()
        .zip(came)
        .map(|(sent, came)| came - sent)
        .collect())
}

/// Adds the percentiles of one round.
fn add(mut times: Vec<u64>, rounds: &mut [Rounds; 2]) {
    times.sort_unstable();
    for (rounds, (part, _, _)) in rounds.iter_mut().zip(SHOWN) {
        rounds.add(micros(permille(&times, part)));
    }
}
