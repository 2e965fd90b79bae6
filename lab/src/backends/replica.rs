//! A Redis server and a replica that can take its place.

use anyhow::Result;
use lab_servers::{Redis, Wire};

use super::Backend;
use super::Capability::{FifoQueue, Replica};
use super::redis::{self, SETTINGS};
use crate::faults::Requirement;
use crate::testbed::{Server, Servers};
use crate::{Testbed, until};

/// `redis:`, a server with a replica.
pub(super) const REPLICA: Backend = Backend {
    name: "replica",
    has: &[&[Replica, FifoQueue]],
    start,
    check_clean: redis::check_clean_by_lease,
    ..redis::SINGLE
};

fn start(worker: &str, requires: Requirement) -> Result<Testbed> {
    let node = || redis::setup(requires, None).start();
    let nodes = [node(), node()];
    let wires = [Wire::to(nodes[0].address()), Wire::to(nodes[1].address())];
    let front = Wire::to(nodes[0].address());
    let url = format!("{}?{SETTINGS}", front.url_of("redis"));

    follow(&nodes[1], &wires[0]);
    let pair = Pair {
        wires,
        nodes,
        master: 0,
    };
    let testbed = Testbed::with_servers(worker, url, vec![front], pair)?;
    testbed.servers::<Pair>()?.wait_until_in_sync()?;
    Ok(testbed)
}

/// Two servers. One follows the other through a wire that can be frozen.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The wires through which each server is followed by the other.
    wires: [Wire; 2],
    nodes: [Redis; 2],
    master: usize,
}

impl Pair {
    /// The server that clients use.
    pub(crate) fn master(&self) -> &Redis {
        &self.nodes[self.master]
    }

    /// The server that follows the master.
    pub(crate) fn replica(&self) -> &Redis {
        &self.nodes[1 - self.master]
    }

    /// Stops the replication.
    pub(crate) fn lag(&self) {
        self.wires[self.master].freeze(true);
    }

    /// Restarts the killed server as a replica of the other, and waits until it has all data.
    ///
    /// # Errors
    /// If the replica does not catch up before the deadline.
    pub(crate) fn restore(&mut self) -> Result<()> {
        let old = 1 - self.master;
        self.wires[old].freeze(false);
        self.wires[old].partition();
        self.nodes[old].restart();
        follow(&self.nodes[old], &self.wires[self.master]);
        self.wait_until_in_sync()
    }

    fn promote_replica(&mut self) {
        let old = self.master;
        let new = 1 - old;
        self.nodes[old].kill();
        self.nodes[new].command(&["REPLICAOF", "NO", "ONE"]);
        self.master = new;
    }

    /// Promotes the replica, and makes the master its replica. The connections of both stay open.
    pub(crate) fn swap_roles(&mut self) {
        let old = self.master;
        let new = 1 - old;
        self.nodes[new].command(&["REPLICAOF", "NO", "ONE"]);
        follow(&self.nodes[old], &self.wires[new]);
        self.master = new;
    }

    /// Waits until the replica has the data of the master.
    ///
    /// # Errors
    /// If the replica does not catch up before the deadline.
    pub(crate) fn wait_until_in_sync(&self) -> Result<()> {
        until("a replica to follow", || {
            Ok(self
                .replica()
                .info("replication")
                .contains("master_link_status:up")
                .then_some(()))
        })
    }
}

impl Servers for Pair {
    fn count(&self) -> usize {
        1
    }

    fn server(&self, _: usize) -> &dyn Server {
        self.master()
    }

    fn server_mut(&mut self, _: usize) -> &mut dyn Server {
        &mut self.nodes[self.master]
    }
}

/// Kills the master and puts its replica in its place.
///
/// # Errors
/// If the store has no replica.
pub(crate) fn fail_over(testbed: &mut Testbed) -> Result<()> {
    testbed.servers_mut::<Pair>()?.promote_replica();
    lead_to_master(testbed)?;
    for front in testbed.wires.iter().chain(&testbed.holder_route.wires) {
        front.partition();
    }
    Ok(())
}

/// Leads new connections of all clients to the master.
///
/// # Errors
/// If the store has no replica.
pub(crate) fn lead_to_master(testbed: &Testbed) -> Result<()> {
    let master = testbed.servers::<Pair>()?.master().address();
    for front in testbed.wires.iter().chain(&testbed.holder_route.wires) {
        front.lead_to(&*master);
    }
    Ok(())
}

fn follow(replica: &Redis, wire: &Wire) {
    replica.command(&["REPLICAOF", "127.0.0.1", &wire.port().to_string()]);
}
