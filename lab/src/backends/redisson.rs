//! One Redis server with the locks of Redisson.

use anyhow::{Result, ensure};

use super::Backend;
use super::Capability::{ExpiringKeys, PlainKeys};
use super::redis::{self, ONE_SERVER, SET_UPS};
use crate::{LockKind, Testbed, WorkerConfig};

/// `redis:` with `dialect=redisson`.
pub(super) const LOCK: Backend = Backend {
    name: "redisson",
    // The tokens are the server's time, and the format does not remember them.
    token_slack: u64::MAX,
    load_min: 5.0,
    has: &[ONE_SERVER, SET_UPS, &[PlainKeys, ExpiringKeys]],
    start: |worker, requires| redis::start_behind_wire(worker, requires, "dialect=redisson"),
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};

/// Every mutex is a write lock.
pub(super) const READ_WRITE: Backend = Backend {
    name: "redisson-rw",
    start: |worker, requires| {
        redis::start_behind_wire(worker, requires, "dialect=redisson&lock=rw")
    },
    ..LOCK
};

/// Every mutex is a semaphore of one permit. Its key is the count of the free permits.
pub(super) const SEMAPHORE: Backend = Backend {
    name: "redisson-semaphore",
    has: &[ONE_SERVER, SET_UPS, &[PlainKeys]],
    start: |worker, requires| {
        redis::start_behind_wire(worker, requires, "dialect=redisson&lock=semaphore")
    },
    check_clean: check_clean_of_semaphores,
    ..LOCK
};

fn check_clean_of_semaphores(
    backend: &Backend,
    testbed: &Testbed,
    last: &WorkerConfig,
) -> Result<()> {
    let permanent: Vec<String> = last
        .names
        .iter()
        .flat_map(|name| [name.clone(), held_permits(name)])
        .collect();
    redis::check_clean_except(&permanent, backend, testbed, last)?;
    check_permits(testbed, last)
}

/// Checks that no permit is missing, and none too many exists. A permit whose lease has ended is
/// given back by the next claim.
fn check_permits(testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
    let server = testbed.servers_of::<lab_servers::Redis>()[0];
    for (number, name) in last.names.iter().enumerate() {
        let size = match last.kind_of(u16::try_from(number)?) {
            LockKind::Slots { slots, .. } => i64::from(slots),
            _ => 1,
        };
        let free: i64 = server.command(&["GET", name]).text().parse()?;
        let held = server.command(&["ZCARD", &held_permits(name)]).int();
        ensure!(
            free + held == size,
            "{name} has {free} free permits and {held} held ones of {size}"
        );
    }
    Ok(())
}

/// The key of the permits that are held.
fn held_permits(name: &str) -> String {
    if name.contains('{') {
        format!("{name}:timeout")
    } else {
        format!("{{{name}}}:timeout")
    }
}
