//! The time of a hand-over to another process: on Redis when a round trip takes 1 ms, and on files.
//!
//! The time begins when the holder begins to release. It ends when the next holder, in another
//! process, has received its grant. The limit is one message: by way of the server, or a write that
//! inotify reports. A library that sends another request after its wake-up needs two.

use std::time::Duration;

use anyhow::{Result, bail};
use lab_servers::Wire;

use super::{ROUNDS, micros, permille};
use crate::client::{Client, clients, file_url, server};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

/// The delay of each direction.
const DELAY: Duration = Duration::from_micros(500);
const MESSAGES: usize = 1_000;
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
    let folder = tempfile::tempdir()?;

    let mut table = Table::new("handover");
    let url = wire.url_of("redis");
    Network {
        what: "1 ms round trip",
        hop: "PUBLISH to another process",
        raw: clients("raw", 2, &url)?,
        leasehold: clients("leasehold", 2, &url)?,
        has_goals: true,
    }
    .measure(&mut table)?;

    Network {
        what: "files",
        hop: "inotify wake-up",
        raw: clients("flock", 2, &folder.path().display().to_string())?,
        leasehold: clients("leasehold", 2, &file_url(folder.path()))?,
        has_goals: false,
    }
    .measure(&mut table)?;
    table.finish()
}

/// Two processes of leasehold, and two of the limit.
struct Network {
    what: &'static str,
    /// The name of the limit in the table.
    hop: &'static str,
    raw: Vec<Client>,
    leasehold: Vec<Client>,
    has_goals: bool,
}

impl Network {
    fn measure(mut self, table: &mut Table) -> Result<()> {
        let mut hop: [Rounds; 2] = Default::default();
        let mut hand_over: [Rounds; 2] = Default::default();
        for _ in 0..ROUNDS {
            add(hops(&mut self.raw)?, &mut hop);
            let contest = CONTEST.run(&mut self.leasehold)?;
            add(contest.hand_overs_across(), &mut hand_over);
        }

        for (number, (_, percentile, goal)) in SHOWN.into_iter().enumerate() {
            let what = format!("hand-over, {}, {percentile}", self.what);
            table.add((&what, self.hop, "µs"), &hop[number], None);
            table.add_beside(
                (&what, "leasehold", "µs"),
                &hand_over[number],
                (self.hop, &hop[number]),
                self.has_goals.then_some(Goal::AtMost(goal)),
            );
        }
        Ok(())
    }
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
