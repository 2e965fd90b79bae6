//! How long a server may be unreachable or stalled without leasehold stopping the command.
//!
//! Each test runs 50 commands, which start one after the other. So some of them are about to renew
//! when the outage begins, which is the worst moment. `LEASEHOLD_OUTAGE_RUNS` sets another number.
//! Connections to Redis break in `lab/simulation/tests/suites/survival.rs`.

use std::thread::sleep;
use std::time::Duration;

use lab_servers::{Redis, Wire, ZooKeeper};

use crate::sandbox::{Finished, Sandbox, Started, until};

/// The default crash grace, the default session, and the lease that the Redlock tests request.
const VALIDITY: Duration = Duration::from_secs(10);
const OUTAGE: f64 = 0.6;

fn runs() -> u32 {
    std::env::var("LEASEHOLD_OUTAGE_RUNS").map_or(50, |runs| runs.parse().unwrap())
}

fn commands_survive(url: String, lease: &str, begin: impl FnOnce(), end: impl FnOnce()) {
    let sandbox = Sandbox::at(url);
    let commands: Vec<Started> = (0..runs())
        .map(|run| command(&sandbox, lease, run))
        .collect();
    until("all commands run", || {
        (0..runs()).all(|run| sandbox.path(&format!("up-{run}")).exists())
    });
    sleep(VALIDITY / 2);

    begin();
    sleep(VALIDITY.mul_f64(OUTAGE));
    end();

    sleep(VALIDITY / 2);
    let done: Vec<Finished> = commands.into_iter().map(Started::end).collect();
    let stopped: Vec<&Finished> = done
        .iter()
        .filter(|done| done.status.code() != Some(0))
        .collect();
    assert!(
        stopped.is_empty(),
        "{} of {} were stopped: {:?}",
        stopped.len(),
        done.len(),
        stopped[0]
    );
}

/// Starts a command that runs until its standard input ends.
fn command(sandbox: &Sandbox, lease: &str, run: u32) -> Started {
    sleep(VALIDITY / 3 / runs());
    let name = format!("job-{run}");
    let line = format!("echo > up-{run}; exec cat");
    sandbox.started(&["run", &name, "--lease", lease, "--", "sh", "-c", &line])
}

fn break_off(wires: &[Wire]) {
    for wire in wires {
        wire.refuse(true);
        wire.partition();
    }
}

fn mend(wires: &[Wire]) {
    for wire in wires {
        wire.refuse(false);
    }
}

fn redlock_url(addresses: &[String]) -> String {
    format!("redlock://{}?quarantine=off", addresses.join(","))
}

/// Shows G-24.
#[test]
fn redis_commands_survive_stalled_server() {
    let server = Redis::start();
    commands_survive(server.url(), "30s", || server.pause(), || server.resume());
}

/// Shows G-24.
#[test]
fn redlock_commands_survive_stalled_servers() {
    let servers: Vec<Redis> = (0..3).map(|_| Redis::start()).collect();
    let url = redlock_url(&servers.iter().map(Redis::address).collect::<Vec<_>>());
    let stall = || servers.iter().for_each(Redis::pause);
    commands_survive(url, "10s", stall, || servers.iter().for_each(Redis::resume));
}

/// Shows G-24.
#[test]
fn zookeeper_commands_survive_stalled_server() {
    let server = ZooKeeper::setup().tick(2_000).start();
    commands_survive(server.url(), "30s", || server.pause(), || server.resume());
}

/// Shows G-24.
#[test]
fn zookeeper_commands_survive_broken_connections() {
    let server = ZooKeeper::setup().tick(2_000).start();
    let wires = [Wire::to(server.address())];
    commands_survive(
        wires[0].url_of("zookeeper"),
        "30s",
        || break_off(&wires),
        || mend(&wires),
    );
}
