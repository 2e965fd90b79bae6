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
    let stats = server.info("commandstats");
    let calls = ["evalsha", "eval", "ping", "subscribe"]
        .iter()
        .filter_map(|name| {
            let rest = stats.split(&format!("cmdstat_{name}:calls=")).nth(1)?;
            rest.split(',').next()?.parse::<u64>().ok()
        });
    calls.sum()
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
