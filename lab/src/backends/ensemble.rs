//! Three ZooKeeper servers.

use lab_servers::{Ensemble, ZooKeeperRelease};

use super::Capability::{Leader, Majority};
use super::{Backend, zookeeper};
use crate::testbed::{Server, Servers};

/// `zookeeper:`, three servers.
pub(super) const ENSEMBLE: Backend = Backend {
    name: "ensemble",
    recovery_seconds: 20,
    load_min: 2.0,
    has: &[zookeeper::COMMON, &[Majority, Leader]],
    start: |worker, _| {
        let setup = zookeeper::setup().release(ZooKeeperRelease::Newest);
        let servers = Ensemble::of(&setup);
        zookeeper::start(worker, &servers.url(), servers)
    },
    ..zookeeper::SINGLE
};

impl Servers for Ensemble {
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
