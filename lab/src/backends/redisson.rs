//! One Redis server with the locks of Redisson.

use anyhow::{Result, ensure};

use super::redis::{self, LEASE};
use super::{Backend, Capability, Profile};
use crate::faults::Requirement;
use crate::{LockKind, Testbed, WorkerConfig};

/// `redis:` with `dialect=redisson` and one class of locks.
#[derive(Debug)]
pub(super) struct RedissonDialect {
    name: &'static str,
    settings: &'static str,
}

pub(super) const LOCK: RedissonDialect = RedissonDialect {
    name: "redisson",
    settings: "dialect=redisson",
};

/// Every mutex is a write lock.
pub(super) const READ_WRITE: RedissonDialect = RedissonDialect {
    name: "redisson-rw",
    settings: "dialect=redisson&lock=rw",
};

/// Every mutex is a semaphore of one permit.
pub(super) const SEMAPHORE: RedissonDialect = RedissonDialect {
    name: "redisson-semaphore",
    settings: "dialect=redisson&lock=semaphore",
};

impl Backend for RedissonDialect {
    fn profile(&self) -> Profile {
        Profile {
            name: self.name,
            lease: LEASE,
            requested_lease: LEASE,
            recovery_seconds: 10,
            // The tokens are the server's time, and the format does not remember them.
            token_slack: u64::MAX,
            load_min: 5.0,
            has: &[
                Capability::Network,
                Capability::ServerProcess,
                Capability::ServerClock,
                Capability::RedisCommands,
                Capability::SingleRedis,
                Capability::PlainKeys,
                Capability::SmallDisk,
                Capability::ImmediateRemoval,
            ],
        }
    }

    fn start(&self, worker: &str, requires: Requirement) -> Result<Testbed> {
        redis::start_behind_wire(worker, requires, self.settings)
    }

    fn wait_until_ready(&self, _: &Testbed) -> Result<()> {
        Ok(())
    }

    fn plant(&self, testbed: &Testbed) -> Result<()> {
        redis::plant(testbed);
        Ok(())
    }

    fn verify_and_remove(&self, testbed: &Testbed) -> Result<usize> {
        redis::verify_and_remove(testbed)
    }

    fn check_clean(&self, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
        if self.name != SEMAPHORE.name {
            return redis::check_clean_by_lease(self, testbed, last);
        }

        let permanent: Vec<String> = last
            .names
            .iter()
            .flat_map(|name| [name.clone(), held_permits(name)])
            .collect();
        redis::check_clean_except(&permanent, self, testbed, last)?;
        check_permits(testbed, last)
    }
}

/// Checks that no permit is missing, and none too many exists. A permit whose lease has ended is
/// given back by the next claim.
fn check_permits(testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
    let server = testbed.redis()[0];
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
