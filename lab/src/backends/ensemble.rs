//! Three ZooKeeper servers.

use anyhow::Result;
use lab_servers::{Ensemble as ThreeServers, ZooKeeperRelease};

use super::zookeeper::{self, REQUESTED_LEASE, SESSION};
use super::{Backend, Capability, Profile};
use crate::faults::Requirement;
use crate::testbed::{Server, Servers};
use crate::{Testbed, WorkerConfig};

/// `zookeeper:`, three servers.
#[derive(Debug)]
pub(super) struct Ensemble;

impl Backend for Ensemble {
    fn profile(&self) -> Profile {
        Profile {
            name: "ensemble",
            lease: SESSION,
            requested_lease: REQUESTED_LEASE,
            recovery_seconds: 20,
            token_slack: 0,
            load_min: 2.0,
            has: &[
                Capability::Network,
                Capability::ServerProcess,
                Capability::Sessions,
                Capability::Majority,
                Capability::Leader,
                Capability::FifoQueue,
            ],
        }
    }

    fn start(&self, worker: &str, _: Requirement) -> Result<Testbed> {
        let setup = zookeeper::setup().release(ZooKeeperRelease::Newest);
        let servers = ThreeServers::of(&setup);
        zookeeper::start(worker, &servers.url(), servers)
    }

    fn wait_until_ready(&self, testbed: &Testbed) -> Result<()> {
        zookeeper::wait_until_ready(testbed);
        Ok(())
    }

    fn plant(&self, testbed: &Testbed) -> Result<()> {
        zookeeper::plant(testbed)
    }

    fn verify_and_remove(&self, testbed: &Testbed) -> Result<usize> {
        zookeeper::verify_and_remove(testbed)
    }

    fn check_clean(&self, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
        let leader = testbed.servers::<ThreeServers>()?.leader();
        zookeeper::check_clean(self, testbed, last, leader)
    }
}

impl Servers for ThreeServers {
    fn count(&self) -> usize {
        Self::count(self)
    }

    fn server(&self, number: usize) -> &dyn Server {
        Self::server(self, number)
    }

    fn server_mut(&mut self, number: usize) -> &mut dyn Server {
        Self::server_mut(self, number)
    }
}
