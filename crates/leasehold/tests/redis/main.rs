//! The guarantees that only the Redis store gives, on real servers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

mod connections;
mod crash_detection;
mod holds;
mod keys;
mod late_requests;
mod queue;
mod redisson;
mod round_trips;

use std::time::Duration;

use lab_servers::{Raw, Redis, Wire};
use leasehold::{Guard, Lock, Locks};
use leasehold_conformance::support::waiters;

async fn open(url: &str, settings: &str) -> Locks {
    leasehold::open(&format!("{url}?{settings}"))
        .await
        .expect("the store opens")
}

/// A client that the wire can cut off from the server.
async fn remote(server: &Redis, settings: &str) -> (Wire, Locks) {
    let wire = Wire::to(server.address());
    let locks = open(&wire.url_of("redis"), settings).await;
    (wire, locks)
}

fn cut_off(wire: &Wire) {
    wire.refuse(true);
    wire.partition();
}

/// Acquires and releases a lock.
async fn use_once(lock: &Lock) {
    let held = lock.acquire().await.expect("granted");
    held.release().await.expect("released");
}

async fn held_for(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

const DAY: i64 = 24 * 60 * 60;
/// How long a waiter may wait until the crashes of others are noticed.
const GRANT_TIMEOUT: Duration = Duration::from_secs(20);

type Waiting = tokio::task::JoinHandle<leasehold::Result<Guard>>;

/// One more waiter for the mutex `a`, in the queue behind `ahead` others.
async fn wait_behind(locks: &Locks, ahead: usize) -> Waiting {
    wait_with_lease(locks, ahead, Duration::from_secs(30)).await
}

async fn wait_with_lease(locks: &Locks, ahead: usize, lease: Duration) -> Waiting {
    let lock = locks.mutex("a").lease(lease);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(locks, "a", ahead + 1).await;
    waiting
}

async fn granted(waiting: Waiting) -> Guard {
    let granted = tokio::time::timeout(GRANT_TIMEOUT, waiting).await;

    granted
        .expect("the lock is granted in time")
        .expect("the task runs")
        .expect("granted")
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
