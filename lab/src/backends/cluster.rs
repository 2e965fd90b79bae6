//! A Redis Cluster of three masters, each with a replica.

use lab_servers::Cluster;

use super::Backend;
use super::Capability::{Failover, Shards};
use super::redis::{self, SETTINGS};
use crate::Testbed;
use crate::testbed::{Server, Servers};

/// `redis+cluster:`.
pub(super) const CLUSTER: Backend = Backend {
    name: "cluster",
    recovery_seconds: 20,
    load_min: 2.0,
    has: &[&[Failover, Shards]],
    start: |worker, _| {
        let cluster = Cluster::start();
        let url = format!("{}?{SETTINGS}", cluster.url());
        Testbed::with_servers(worker, url, Vec::new(), cluster)
    },
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};

impl Servers for Cluster {
    fn count(&self) -> usize {
        Self::count(self)
    }

    fn server(&self, number: usize) -> &dyn Server {
        self.node(number)
    }

    fn server_mut(&mut self, number: usize) -> &mut dyn Server {
        self.node_mut(number)
    }
}
