//! The guarantees that only the Redis store gives, on real servers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

#[path = "../shared/clients.rs"]
mod clients;
mod connections;
#[path = "../shared/crash_detection.rs"]
mod crash_detection;
#[path = "../shared/holds.rs"]
mod holds;
mod keys;
mod late_requests;
mod queue;
mod redisson;
mod refused_writes;
mod round_trips;

use std::time::Duration;

use lab_servers::{Raw, Redis, Wire};
use leasehold::Guard;

use clients::{Waiting, cut_off, granted, open, remote, use_once, wait_behind, wait_with_lease};

async fn held_for(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

const DAY: i64 = 24 * 60 * 60;

/// How many requests of clients the server has executed.
fn received(server: &Redis) -> u64 {
    let of_clients = ["evalsha", "eval", "ping", "subscribe"];
    of_clients.map(|name| calls(server, name)).iter().sum()
}

/// How often the server has executed a command, also in scripts.
fn calls(server: &Redis, command: &str) -> u64 {
    let stats = server.info("commandstats");
    let rest = stats.split(&format!("cmdstat_{command}:calls=")).nth(1);
    let count = rest.and_then(|rest| rest.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

/// Receives every command that the server runs.
fn monitor(server: &Redis) -> Raw {
    let mut raw = server.connection();
    raw.request(&["MONITOR"]).expect("MONITOR starts");
    raw
}

/// The commands that the server ran until now, as MONITOR shows them.
fn commands(server: &Redis, monitor: &mut Raw) -> Vec<String> {
    static END: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let end = format!(
        "end-{}",
        END.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    );
    server.command(&["ECHO", &end]);
    let mut commands = Vec::new();
    loop {
        let command = monitor
            .receive_reply()
            .expect("a command")
            .text()
            .to_owned();
        if command.contains(&end) {
            return commands;
        }
        commands.push(command);
    }
}

/// The commands that clients sent. MONITOR tags the commands that scripts run.
fn requests(commands: &[String]) -> usize {
    commands
        .iter()
        .filter(|command| !command.contains(" lua] "))
        .count()
}
