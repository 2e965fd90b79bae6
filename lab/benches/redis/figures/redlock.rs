//! Acquire and release on five masters when no other client wants the lock.
//!
//! The goal is one and a half times leasehold's own pair on one master. The benchmark measures two
//! set-ups. In the first, five servers share a CPU of the machine. In the second, the requests pass
//! over wires on which a round trip takes 1 ms.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Redis, Wire};

use super::pairs::{Measured, measure};
use crate::cpus::{self, Cpus};
use crate::table::{Goal, Table};

/// The delay of each direction.
const DELAY: Duration = Duration::from_micros(500);

pub(super) fn show() -> Result<()> {
    let mut table = Table::new("redlock");
    let masters: Vec<Redis> = (0..5).map(|_| cpus::server()).collect();
    add(
        &mut table,
        "p50",
        &masters.iter().map(Redis::address).collect::<Vec<_>>(),
        100,
    )?;

    let far = |master: &Redis| {
        let wire = Wire::to(master.address());
        wire.delay(DELAY);
        wire
    };
    let wires: Vec<Wire> = masters.iter().map(far).collect();
    add(
        &mut table,
        "p50, 1 ms round trip",
        &wires.iter().map(Wire::address).collect::<Vec<_>>(),
        20,
    )?;
    table.finish()
}

fn add(table: &mut Table, what: &str, hosts: &[String], pairs: usize) -> Result<()> {
    let urls: Vec<String> = hosts.iter().map(|host| format!("redis://{host}")).collect();
    let alone = &urls[0];
    let all = urls.join(",");
    let fenced = format!("redlock://{}?quarantine=off", hosts.join(","));
    let classic = format!("redlock://{}?dialect=classic", hosts.join(","));
    let plain = format!("{alone}?dialect=plain");
    let peers = [
        ("raw, one master", "raw", alone),
        ("ours, one master", "leasehold", alone),
        ("ours, dialect=plain, one master", "leasehold", &plain),
        ("raw, quorum of five", "quorum", &all),
        ("ours, redlock", "leasehold", &fenced),
        ("ours, dialect=classic", "leasehold", &classic),
        ("rslock, five masters", "rslock", &all),
    ];
    let start = |(name, peer, url): (&str, &str, &String)| {
        Measured::start(name, peer, Cpus::Split.client(), url)
    };
    let mut peers = peers.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let noise = measure(&mut peers, pairs)?;

    let one = peers[1].p50.clone();
    for peer in &peers {
        let goal = (peer.name == "ours, redlock").then_some(Goal::AtMost(1.5));
        table.add_beside(
            (what, &peer.name, "µs"),
            &peer.p50,
            ("ours, one master", &one),
            goal,
        );
    }

    noise.add_to(table, what, &peers[0]);
    Ok(())
}
