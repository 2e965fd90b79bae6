//! As many pairs as possible on 64 names at once, and their server CPU time. Some peers use a pool
//! of connections, the others one.
//!
//! Each peer batches its requests in its own way.

use anyhow::{Context, Result};
use lab_servers::Redis;

use super::{ROUNDS, count, float};
use crate::client::{Client, Cpus, server};
use crate::peers::ON_REDIS;
use crate::table::{Goal, Rounds, Table};
use crate::workload::Workload;

const NAMES: usize = 64;
/// The number of pairs per name and round of a peer.
const EACH: usize = 100;

struct Measured {
    client: Client,
    name: &'static str,
    rate: Rounds,
    server: Rounds,
}

pub(super) fn show() -> Result<()> {
    let server = server();
    let mut peers = Vec::new();
    for name in ON_REDIS {
        let mut client = Client::start(name, Cpus::Split, &server.url())?;
        // The first pass creates the names and loads the scripts. It does not count.
        pass(&mut client)?;
        peers.push(Measured {
            client,
            name,
            rate: Rounds::default(),
            server: Rounds::default(),
        });
    }
    for _ in 0..ROUNDS {
        for peer in &mut peers {
            peer.measure(&server)?;
        }
    }

    let (raw, others) = peers.split_first().context("the limit is the first peer")?;
    let scripts = others.first().context("the scripts are the second")?;
    let mut table = Table::new("names");
    let rate = "pairs, 64 names at once";
    let cpu = "server CPU per pair";
    table.add((rate, "raw", "/ms"), &raw.rate, None);
    table.add((cpu, "raw", "µs"), &raw.server, None);
    for peer in others {
        let goal = |goal| (peer.name == "leasehold").then_some(goal);
        table.add_beside(
            (rate, peer.name, "/ms"),
            &peer.rate,
            ("raw", &raw.rate),
            None,
        );
        if peer.name == "leasehold" {
            let goal = Some(Goal::AtLeast(0.75));
            let beside = (scripts.name, &scripts.rate);
            table.add_beside((rate, peer.name, "/ms"), &peer.rate, beside, goal);
        }
        table.add_beside(
            (cpu, peer.name, "µs"),
            &peer.server,
            ("raw", &raw.server),
            goal(Goal::AtMost(2.0)),
        );
    }
    table.finish()
}

impl Measured {
    fn measure(&mut self, server: &Redis) -> Result<()> {
        let pairs = count(NAMES * EACH);
        let before = server.cpu_used();
        let took = pass(&mut self.client)?;
        let used = server.cpu_used().saturating_sub(before);
        self.rate.add(pairs / float(took) * 1e6);
        self.server.add(used.as_secs_f64() * 1e6 / pairs);
        Ok(())
    }
}

fn pass(client: &mut Client) -> Result<u64> {
    let took = client.run(&Workload::Names {
        names: NAMES,
        each: EACH,
    })?;
    took.first().copied().context("the reply is one time")
}
