//! A master and two replicas that three sentinels watch, in three configurations.

use anyhow::Result;
use lab_servers::{Redis, Sentinels, Setup};

use super::Backend;
use super::Capability::{Failover, LaggingReplicas, ReplicatedGrants, WaitsAfterFailover, Watched};
use super::redis::{self, SETTINGS};
use crate::Testbed;
use crate::testbed::{Server, Servers};

/// `redis+sentinel:`. A replica may lack the last grants.
pub(super) const PLAIN: Backend = Backend {
    name: "sentinel",
    recovery_seconds: 20,
    load_min: 2.0,
    has: &[&[Failover, Watched, LaggingReplicas]],
    start: |worker, _| start(worker, &Redis::setup(), ""),
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};

/// `replicas=1`, and a master without a replica that refuses writes.
pub(super) const REPLICATED: Backend = Backend {
    name: "sentinel-replicas",
    has: &[&[Failover, Watched, ReplicatedGrants]],
    start: |worker, _| {
        let setup = Redis::setup()
            .config("min-replicas-to-write", "1")
            .config("min-replicas-max-lag", "1");
        start(worker, &setup, "&replicas=1")
    },
    ..PLAIN
};

/// `after-failover=wait`. No lease is longer than that of the workers.
pub(super) const WAITING: Backend = Backend {
    name: "sentinel-wait",
    has: &[&[Failover, Watched, LaggingReplicas, WaitsAfterFailover]],
    start: |worker, _| {
        let settings = "&after-failover=wait&longest-lease=1500ms";
        start(worker, &Redis::setup(), settings)
    },
    ..PLAIN
};

fn start(worker: &str, setup: &Setup, settings: &str) -> Result<Testbed> {
    let group = Sentinels::of(setup, &Redis::setup());
    let url = format!("{}?{}&{SETTINGS}{settings}", group.url(), group.settings());
    Testbed::with_servers(worker, url, Vec::new(), group)
}

/// The master at the time of the call.
impl Servers for Sentinels {
    fn count(&self) -> usize {
        1
    }

    fn server(&self, _: usize) -> &dyn Server {
        Self::server(self, self.master())
    }

    fn server_mut(&mut self, _: usize) -> &mut dyn Server {
        Self::server_mut(self, self.master())
    }
}
