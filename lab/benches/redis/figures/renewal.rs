//! The renewal of 100,000 locks, each every 10 s.
//!
//! The limit renews the expiry of the same number of keys without any condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_servers::{Redis, Reply};

use super::{ROUNDS, float};
use crate::client::Client;
use crate::cpus::{self, Cpus};
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

const NAMES: usize = 100_000;
/// The time in which every lease of 30 s is renewed once.
const PERIOD: Duration = Duration::from_secs(10);
const BATCH: usize = 100;

/// One server with its client, and the CPU shares of both.
struct Measured {
    server: Redis,
    client: Client,
    server_share: Rounds,
    client_share: Rounds,
}

pub(super) fn show() -> Result<()> {
    let mut leasehold = Measured::start("leasehold")?;
    let mut raw = Measured::start("raw")?;
    leasehold
        .client
        .run(&Workload::Hold { names: NAMES })?
        .context("the peer can hold")?;
    raw.renew()?;
    // The work of the start is done after one period.
    sleep(PERIOD);
    leasehold
        .server
        .command(&["CONFIG", "SET", "slowlog-max-len", "10000"]);
    leasehold
        .server
        .command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);

    let [mut longest, mut mean] = [Rounds::default(), Rounds::default()];
    for _ in 0..ROUNDS {
        leasehold.server.command(&["SLOWLOG", "RESET"]);
        period(&mut leasehold, &mut raw)?;
        let took = scripts(&leasehold.server);
        ensure!(!took.is_empty(), "the client did not renew any lock");
        longest.add(took.iter().copied().fold(0.0, f64::max));
        mean.add(took.iter().sum::<f64>() / float(took.len() as u64));
    }

    let mut table = Table::new("renewal");
    let limit = "raw";
    let what = "server CPU, 100,000 locks";
    table.add(what, limit, "%", &raw.server_share, None);
    table.add(
        what,
        "leasehold",
        "%",
        &leasehold.server_share,
        Some(Goal::AtMost(1.2)),
    );
    table.add_beside(
        (what, "leasehold", "%"),
        &leasehold.server_share,
        (limit, &raw.server_share),
        None,
    );
    table.add(
        "client CPU, 100,000 locks",
        "leasehold",
        "%",
        &leasehold.client_share,
        None,
    );
    table.add(
        "script that renews 100, mean",
        "leasehold",
        "µs",
        &mean,
        None,
    );
    table.add(
        "script that renews 100, longest",
        "leasehold",
        "µs",
        &longest,
        Some(Goal::AtMost(250.0)),
    );
    table.finish()
}

impl Measured {
    fn start(peer: &str) -> Result<Self> {
        let server = cpus::server();
        let client = Client::start(peer, Cpus::Split.client(), &server.url())?;
        Ok(Self {
            server,
            client,
            server_share: Rounds::default(),
            client_share: Rounds::default(),
        })
    }

    fn renew(&mut self) -> Result<()> {
        self.client
            .run(&Workload::Renew {
                names: NAMES,
                batch: BATCH,
            })?
            .context("the peer can renew")
            .map(drop)
    }

    fn used(&self) -> Result<(Duration, Duration)> {
        Ok((
            self.server.cpu_used(),
            Duration::from_nanos(self.client.cpu_used()?),
        ))
    }

    fn footnote(&mut self, before: (Duration, Duration), passed: Duration) -> Result<()> {
        let (server, client) = self.used()?;
        self.server_share
            .add(100.0 * server.saturating_sub(before.0).as_secs_f64() / passed.as_secs_f64());
        self.client_share
            .add(100.0 * client.saturating_sub(before.1).as_secs_f64() / passed.as_secs_f64());
        Ok(())
    }
}

fn period(leasehold: &mut Measured, raw: &mut Measured) -> Result<()> {
    let begun = Instant::now();
    let before = [leasehold.used()?, raw.used()?];
    raw.renew()?;
    sleep(PERIOD.saturating_sub(begun.elapsed()));
    let passed = begun.elapsed();
    leasehold.footnote(before[0], passed)?;
    raw.footnote(before[1], passed)
}

/// Returns the time that each script took, in microseconds.
fn scripts(server: &Redis) -> Vec<f64> {
    let events = server.command(&["SLOWLOG", "GET", "10000"]);
    let is_script = |entry: &&Reply| {
        entry.list()[3]
            .texts()
            .first()
            .is_some_and(|push| push.starts_with("EVAL"))
    };

    events
        .list()
        .iter()
        .filter(is_script)
        .map(|entry| float(entry.list()[2].int().unsigned_abs()))
        .collect()
}
