//! A Redis Cluster of three masters, each with a replica.

use anyhow::{Result, ensure};
use lab_servers::Cluster as Servers;

use super::redis::{LEASE, SETTINGS};
use super::{Backend, CANARY, Capability, Profile, wait_for_empty_queues};
use crate::faults::Requirement;
use crate::{Testbed, WorkerConfig};

/// `redis+cluster:`.
#[derive(Debug)]
pub(super) struct Cluster;

/// Names near those of the matrix's locks, and near their keys.
const CANARY_KEYS: [&str; 3] = ["{a}:other", "leasehold", "leasehold-other"];

impl Backend for Cluster {
    fn profile(&self) -> Profile {
        Profile {
            name: "cluster",
            lease: LEASE,
            requested_lease: LEASE,
            recovery_seconds: 20,
            token_slack: 0,
            load_min: 2.0,
            has: &[Capability::Failover, Capability::Slots],
        }
    }

    fn start(&self, worker: &str, _: Requirement) -> Result<Testbed> {
        let cluster = Servers::start();
        let url = format!("{}?{SETTINGS}", cluster.url());
        Testbed::with_servers(worker, url, Vec::new(), cluster)
    }

    fn wait_until_ready(&self, _: &Testbed) -> Result<()> {
        Ok(())
    }

    fn plant(&self, testbed: &Testbed) -> Result<()> {
        let cluster = testbed.servers::<Servers>()?;
        for key in CANARY_KEYS {
            let master = cluster.master_of(cluster.slot_of(key));
            cluster.node(master).command(&["SET", key, CANARY]);
        }
        Ok(())
    }

    fn verify_and_remove(&self, testbed: &Testbed) -> Result<usize> {
        let cluster = testbed.servers::<Servers>()?;
        let mut missing = 0;
        for key in CANARY_KEYS {
            let master = cluster.node(cluster.master_of(cluster.slot_of(key)));
            let found = master.command(&["GET", key]);
            if found.is_nil() {
                missing += 1;
                continue;
            }
            ensure!(
                found.bytes() == CANARY.as_bytes(),
                "the canary {key} was changed: {found:?}"
            );
            master.command(&["DEL", key]);
        }
        Ok(missing)
    }

    fn check_clean(&self, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
        testbed.hold_each_once(last)?;
        wait_for_empty_queues(self, testbed, last)?;

        let cluster = testbed.servers::<Servers>()?;
        let nodes = (0..cluster.count()).map(|number| cluster.node(number));
        for master in nodes.filter(|node| node.info("replication").contains("role:master")) {
            for key in master.command(&["KEYS", "*"]).texts() {
                let ttl = master.command(&["PTTL", key]).int();
                ensure!(ttl != -1, "the key {key} never expires");
            }
        }
        Ok(())
    }
}
