//! The time of a hand-over to another process: on Redis when a round trip takes 1 ms, on
//! PostgreSQL, and on files. And on five masters of Redis beside a single one.
//!
//! The time begins when the holder begins to release. It ends when the next holder, in another
//! process, has received its grant. The limit is one message: by way of the server, a durable
//! commit that notifies, or a write that inotify reports. A library that sends another request
//! after its wake-up needs two.

use std::time::Duration;

use anyhow::{Result, bail};
use lab_servers::{Redis, Wire};

use super::{DELAY, ROUNDS, micros, permille};
use crate::client::{Client, clients, durable_postgres, file_url, new_masters, server};
use crate::holds::Contest;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

const MESSAGES: usize = 1_000;
const CONTEST: Contest = Contest {
    threads: 8,
    lasts: Duration::from_secs(2),
};
/// The percentiles in thousandths.
const SHOWN: [(usize, &str); 2] = [(500, "p50"), (990, "p99")];

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
        goals: [Some(1.05), Some(1.2)],
    }
    .measure(&mut table)?;

    let (_postgres, url) = durable_postgres();
    Network {
        what: "PostgreSQL",
        hop: "commit + NOTIFY to another process",
        raw: clients("notifications", 2, &url)?,
        leasehold: clients("leasehold", 2, &url)?,
        goals: [Some(1.3), None],
    }
    .measure(&mut table)?;

    Network {
        what: "files",
        hop: "inotify wake-up",
        raw: clients("flock", 2, &folder.path().display().to_string())?,
        leasehold: clients("leasehold", 2, &file_url(folder.path()))?,
        goals: [None, None],
    }
    .measure(&mut table)?;
    five_masters(&mut table)?;
    table.finish()
}

/// Adds the hand-overs on five masters, beside those on one of them.
fn five_masters(table: &mut Table) -> Result<()> {
    let masters: [_; 5] = std::array::from_fn(|_| server());
    let addresses = masters.each_ref().map(Redis::address).join(",");
    let mut one = clients("leasehold", 2, &masters[0].url())?;
    let mut five = clients(
        "leasehold",
        2,
        &new_masters(&format!("redlock://{addresses}")),
    )?;
    let mut on_one: [Rounds; 2] = Default::default();
    let mut on_five: [Rounds; 2] = Default::default();
    for _ in 0..ROUNDS {
        add(CONTEST.run(&mut one)?.hand_overs_across(), &mut on_one);
        add(hand_overs_on_five(&mut five)?, &mut on_five);
    }

    for (number, (goal, (_, percentile))) in [Some(3.0), None].into_iter().zip(SHOWN).enumerate() {
        let what = format!("hand-over, {percentile}");
        table.add((&what, "one master", "µs"), &on_one[number], None);
        let beside = ("one master", &on_one[number]);
        let goal = goal.map(Goal::AtMost);
        table.add_beside(
            (&what, "five masters", "µs"),
            &on_five[number],
            beside,
            goal,
        );
    }
    Ok(())
}

/// Nobody waits in a queue on five masters, so most grants stay within a process.
fn hand_overs_on_five(clients: &mut [Client]) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    while times.len() < 20 {
        times.extend(CONTEST.run(clients)?.hand_overs_across());
    }
    Ok(times)
}

/// Two processes of leasehold, and two of the limit.
struct Network {
    what: &'static str,
    /// The name of the limit in the table.
    hop: &'static str,
    raw: Vec<Client>,
    leasehold: Vec<Client>,
    /// The goals of the ratios of [`SHOWN`].
    goals: [Option<f64>; 2],
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

        for (number, (_, percentile)) in SHOWN.into_iter().enumerate() {
            let what = format!("hand-over, {}, {percentile}", self.what);
            table.add((&what, self.hop, "µs"), &hop[number], None);
            table.add_beside(
                (&what, "leasehold", "µs"),
                &hand_over[number],
                (self.hop, &hop[number]),
                self.goals[number].map(Goal::AtMost),
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
    for (rounds, (part, _)) in rounds.iter_mut().zip(SHOWN) {
        rounds.add(micros(permille(&times, part)));
    }
}
