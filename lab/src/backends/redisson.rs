//! One Redis server with the locks of Redisson.

use anyhow::Result;

use super::redis::{self, LEASE};
use super::{Backend, Capability, Profile};
use crate::faults::Requirement;
use crate::{Testbed, WorkerConfig};

/// `redis:` with `dialect=redisson`.
#[derive(Debug)]
pub(super) struct RedissonDialect;

impl Backend for RedissonDialect {
    fn profile(&self) -> Profile {
        Profile {
            name: "redisson",
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
        redis::start_behind_wire(worker, requires, "dialect=redisson")
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
        redis::check_clean_by_lease(self, testbed, last)
    }
}
