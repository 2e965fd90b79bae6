//! Five independent Redis masters.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Redis, Setup, Wire};

use super::Capability::{
    ExpiringKeys, IndependentServers, Majority, Network, RedisServer, ServerClock, ServerProcess,
    StateCommands, SteadyTokens,
};
use super::{Backend, redis};
use crate::faults::Requirement;
use crate::{Testbed, until};

const LEASE: Duration = Duration::from_secs(1);
const SETTINGS: &str = "longest-lease=1000ms";

/// `redlock:`, five masters.
pub(super) const REDLOCK: Backend = Backend {
    name: "redlock",
    lease: LEASE,
    requested_lease: LEASE,
    load_min: 5.0,
    has: &[
        &[
            Network,
            ServerProcess,
            ServerClock,
            StateCommands,
            RedisServer,
        ],
        &[IndependentServers, Majority, ExpiringKeys, SteadyTokens],
    ],
    start: start_for_fault,
    wait_until_ready: wait_for_quarantine,
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};

fn start_for_fault(worker: &str, requires: Requirement) -> Result<Testbed> {
    let mut testbed = start_with(worker, &redis::setup(requires, None), SETTINGS)?;
    let user = format!("://{}", redis::user(requires));
    testbed.worker_url = testbed.url().replacen("://", &user, 1);
    Ok(testbed)
}

/// Starts five masters, each behind a wire, whose store is opened with these settings, and waits
/// for the end of their quarantine.
///
/// # Errors
/// If the store cannot be opened.
pub fn start(worker: &str, settings: &str) -> Result<Testbed> {
    start_with(worker, &Redis::setup(), settings)
}

fn start_with(worker: &str, setup: &Setup, settings: &str) -> Result<Testbed> {
    let masters: Vec<Redis> = (0..5).map(|_| setup.clone().start()).collect();
    let wires: Vec<Wire> = masters
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
    let url = format!("redlock://{}?{settings}", hosts.join(","));

    let testbed = Testbed::with_servers(worker, url, wires, masters)?;
    wait_for_quarantine(&testbed)?;
    Ok(testbed)
}

/// The URL of the masters with other settings, through other wires where some are given.
#[must_use]
pub fn url_with(testbed: &Testbed, settings: &str, wires: &[(usize, &Wire)]) -> String {
    let hosts = testbed
        .servers_of::<Redis>()
        .into_iter()
        .enumerate()
        .map(|(at, master)| {
            let other = wires.iter().find(|(number, _)| *number == at);
            other.map_or_else(|| master.address(), |(_, wire)| wire.address())
        });
    format!(
        "redlock://{}?{settings}",
        hosts.collect::<Vec<_>>().join(",")
    )
}

/// Waits until every master replies and its vote counts.
///
/// # Errors
/// If that takes longer than [`DEADLINE`](crate::DEADLINE).
pub fn wait_for_quarantine(testbed: &Testbed) -> Result<()> {
    until("the votes of all masters to count", || {
        // Inspection fails while fewer than a majority reply.
        let lock_state = testbed.inspect("unused").ok();
        Ok(lock_state
            .filter(|state| state.servers.iter().all(|server| server.error.is_none()))
            .map(drop))
    })
}
