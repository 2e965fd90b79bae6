//! As many pairs as possible on 64 names at once, over one connection, and their server CPU time.
//!
//! Each peer batches its requests in its own way.

use anyhow::{Context, Result};
use lab_servers::Redis;

use super::{ROUNDS, float};
use crate::client::Client;
use crate::cpus::{self, Cpus};
use crate::peers;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

const NAMES: usize = 64;
/// The number of pairs per name and round of a peer.
const EACH: usize = 400;
/// The same number for a peer that is much slower than the limit.
const EACH_SLOW: usize = 20;

struct Measured {
    client: Client,
    name: String,
    each: usize,
    rate: Rounds,
    server: Rounds,
}

pub(super) fn show() -> Result<()> {
    let server = cpus::server();
    let names = ["raw", "scripts", "leasehold"]
        .map(str::to_owned)
        .into_iter()
        .chain(peers::others()?);
    let mut peers = names
        .map(|name| start(name, &server))
        .collect::<Result<Vec<_>>>()?;
    for _ in 0..ROUNDS {
        peers
            .iter_mut()
            .try_for_each(|peer| peer.measure(&server))?;
    }

    let mut table = Table::new("names");
    rates(&mut table, &peers)?;
    costs(&mut table, &peers)?;
    table.finish()
}

fn start(name: String, server: &Redis) -> Result<Measured> {
    let client = Client::start(&name, Cpus::Split.client(), &server.url())?;
    let each = if name.ends_with("_py") {
        EACH_SLOW
    } else {
        EACH
    };

    let mut peer = Measured {
        client,
        name,
        each,
        rate: Rounds::default(),
        server: Rounds::default(),
    };
    // The first pass creates the names and loads the scripts. It does not count.
    peer.pass(EACH_SLOW)?;
    Ok(peer)
}

impl Measured {
    fn measure(&mut self, server: &Redis) -> Result<()> {
        let pairs = float((NAMES * self.each) as u64);
        let before = server.cpu_used();
        let took = self.pass(self.each)?;
        let used = server.cpu_used().saturating_sub(before);
        self.rate.add(pairs / float(took) * 1e6);
        self.server.add(used.as_secs_f64() * 1e6 / pairs);
        Ok(())
    }

    fn pass(&mut self, each: usize) -> Result<u64> {
        let took = self.client.run(&Workload::Names { names: NAMES, each })?;
        took.and_then(|took| took.first().copied())
            .context("every peer supports names")
    }
}

fn rates(table: &mut Table, peers: &[Measured]) -> Result<()> {
    let raw = find(peers, "raw")?;
    let rslock = find(peers, "rslock")?;
    let leasehold = find(peers, "leasehold")?;
    let what = "pairs, 64 names at once";
    table.add(what, "raw", "/ms", &raw.rate, None);

    for peer in peers.iter().filter(|peer| peer.name != "raw") {
        let goal = (peer.name == "leasehold").then_some(Goal::AtLeast(0.6));
        table.add_beside(
            (what, &peer.name, "/ms"),
            &peer.rate,
            ("raw", &raw.rate),
            goal,
        );
    }

    table.add_beside(
        (what, "leasehold", "/ms"),
        &leasehold.rate,
        ("rslock", &rslock.rate),
        Some(Goal::AtLeast(0.95)),
    );
    Ok(())
}

fn costs(table: &mut Table, peers: &[Measured]) -> Result<()> {
    let raw = find(peers, "raw")?;
    let what = "server CPU per pair";
    table.add(what, "raw", "µs", &raw.server, None);

    for peer in peers.iter().filter(|peer| peer.name != "raw") {
        let goal = ["leasehold", "scripts"]
            .contains(&peer.name.as_str())
            .then_some(Goal::AtMost(2.0));
        table.add_beside(
            (what, &peer.name, "µs"),
            &peer.server,
            ("raw", &raw.server),
            goal,
        );
    }

    Ok(())
}

fn find<'a>(peers: &'a [Measured], name: &str) -> Result<&'a Measured> {
    peers
        .iter()
        .find(|peer| peer.name == name)
        .with_context(|| format!("peer {name} does not exist"))
}
