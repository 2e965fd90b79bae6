//! The time of a hand-over to another process, when a round trip takes 1 ms.
//!
//! The time begins when the holder begins to release. It ends when the next holder, in another
//! process, has received its grant. The limit is one message by way of the server. A library that
//! sends another request after its wake-up needs two.

use std::time::Duration;

use anyhow::{Context, Result};
use lab_servers::Wire;

use super::{ROUNDS, micros, permille};
use crate::client::Client;
use crate::cpus::{self, Cpus};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// The delay of each direction.
const DELAY: Duration = Duration::from_micros(500);
const MESSAGES: usize = 1_000;
/// The name of the limit in the table.
pub(super) const HOP: &str = "PUBLISH to another process";
const CONTEST: Contest = Contest {
    threads: 8,
    hold: Duration::ZERO,
    think: Duration::ZERO,
    lasts: Duration::from_secs(2),
};

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let wire = Wire::to(server.address());
    wire.delay(DELAY);

    let url = wire.url_of("redis");
    let mut raw = cpus::clients("raw", 2, Cpus::Split, &url)?;
    let mut leasehold = cpus::clients("leasehold", 2, Cpus::Split, &url)?;
    let mut rounds: [Rounds; 4] = Default::default();
    for _ in 0..ROUNDS {
        let hops = hops(&mut raw)?;
        let hand_overs = CONTEST.run(&mut leasehold)?.hand_overs_across();
        let [hop_p50, hop_p99, p50, p99] = &mut rounds;
        footnote(hops, hop_p50, hop_p99);
        footnote(hand_overs, p50, p99);
    }

    let [hop_p50, hop_p99, p50, p99] = &rounds;
    let what = "hand-over, 1 ms round trip";
    let hop = HOP;
    let mut table = Table::new("handover");
    table.add(&format!("{what}, p50"), hop, "µs", hop_p50, None);
    table.add_beside(
        (&format!("{what}, p50"), "leasehold", "µs"),
        p50,
        (hop, hop_p50),
        Some(Goal::AtMost(1.05)),
    );
    table.add(&format!("{what}, p99"), hop, "µs", hop_p99, None);
    table.add_beside(
        (&format!("{what}, p99"), "leasehold", "µs"),
        p99,
        (hop, hop_p99),
        Some(Goal::AtMost(1.2)),
    );
    table.finish()
}

/// Measures the time that messages take from one process to another.
pub(super) fn hops(raw: &mut [Client]) -> Result<Vec<u64>> {
    let [sender, receiver] = raw else {
        unreachable!("there are two")
    };
    receiver.run(&Workload::Subscribe)?;
    receiver.begin(&Workload::Receive { count: MESSAGES })?;

    let sent = sender
        .run(&Workload::Publish {
            count: MESSAGES,
            gap_micros: 100,
        })?
        .context("the peer can publish")?;
    let came = receiver.end()?.context("the peer can receive")?;
    Ok(sent
        .iter()
        .zip(came)
        .map(|(sent, came)| came - sent)
        .collect())
}

fn footnote(mut times: Vec<u64>, p50: &mut Rounds, p99: &mut Rounds) {
    times.sort_unstable();
    p50.add(micros(permille(&times, 500)));
    p99.add(micros(permille(&times, 990)));
}
