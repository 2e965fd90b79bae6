//! A Redis server and a replica that takes its place.

use std::ops::Deref;

use anyhow::Result;
use lab_servers::{Redis, Setup, Wire};

use crate::{FolderTestbed, until};

/// Two servers, of which one follows the other by a wire that can be frozen, and a wire that leads to the one that serves.
#[derive(Debug)]
pub struct Pair {
    // Before the wires, which it uses.
    testbed: FolderTestbed,
    /// Between everybody and the master.
    pub front: Wire,
    /// By which the other follows each of them.
    wires: [Wire; 2],
    nodes: [Redis; 2],
    master: usize,
}

impl Pair {
    pub(super) fn start(worker: &str, setup: &Setup, settings: &str) -> Result<Self> {
        let nodes = [setup.clone().start(), setup.clone().start()];
        let wires = [Wire::to(nodes[0].address()), Wire::to(nodes[1].address())];
        let front = Wire::to(nodes[0].address());
        follow(&nodes[1], &wires[0]);
        let testbed = FolderTestbed::at(worker, &format!("{}{settings}", front.url_of("redis")))?;
        let pair = Self {
            testbed,
            front,
            wires,
            nodes,
            master: 0,
        };
        pair.in_step()?;
        Ok(pair)
    }

    /// The one that serves.
    #[must_use]
    pub fn master(&self) -> &Redis {
        &self.nodes[self.master]
    }

    /// The one that follows.
    #[must_use]
    pub fn replica(&self) -> &Redis {
        &self.nodes[1 - self.master]
    }

    /// From now on the replica hears nothing of what is written.
    pub fn lag(&self) {
        self.wires[self.master].freeze(true);
    }

    /// Kills the master and puts its replica in its place.
    pub fn fail_over(&mut self) {
        let (old, new) = (self.master, 1 - self.master);
        self.nodes[old].kill();
        self.nodes[new].command(&["REPLICAOF", "NO", "ONE"]);
        self.front.lead_to(self.nodes[new].address());
        self.front.partition();
        self.master = new;
    }

    /// Starts the one that was killed as the replica of the other, and waits until it has everything.
    ///
    /// # Errors
    /// If it never has.
    pub fn restore(&mut self) -> Result<()> {
        let old = 1 - self.master;
        self.wires[old].freeze(false);
        self.wires[old].partition();
        self.nodes[old].restart();
        follow(&self.nodes[old], &self.wires[self.master]);
        self.in_step()
    }

    fn in_step(&self) -> Result<()> {
        until("a replica to follow", || {
            Ok(self
                .replica()
                .info("replication")
                .contains("master_link_status:up")
                .then_some(()))
        })
    }
}

fn follow(replica: &Redis, wire: &Wire) {
    replica.command(&["REPLICAOF", "127.0.0.1", &wire.port().to_string()]);
}

impl Deref for Pair {
    type Target = FolderTestbed;

    fn deref(&self) -> &FolderTestbed {
        &self.testbed
    }
}
