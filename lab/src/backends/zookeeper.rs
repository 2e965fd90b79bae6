//! One ZooKeeper server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_servers::{Ensemble, Wire, ZooKeeper as Server, ZooKeeperSetup};
use tokio::runtime::Builder;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::Capability::{
    FifoQueue, ImmediateRemoval, Network, ServerProcess, Sessions, SingleServer,
};
use super::{Backend, CANARY, Capability, wait_for_empty_queues};
use crate::testbed::{Server as TestedServer, Servers};
use crate::{Testbed, WorkerConfig, until};

const SETTINGS: &str = "session=2s";
/// Two sessions and what a busy machine adds. No node of a dead client is left by then.
const ORPHANS_MAX: Duration = Duration::from_secs(2 * 2 + 10);
const NODES: &str = "zk_znode_count";
const CANARY_NODE: &str = "/other";
const CANARY_SESSION: Duration = Duration::from_secs(10);

/// What one server and an ensemble have in common.
pub(super) const COMMON: &[Capability] = &[Network, ServerProcess, Sessions, FifoQueue];

/// `zookeeper:`, one server.
pub(super) const SINGLE: Backend = Backend {
    name: "zookeeper",
    lease: Duration::from_secs(2),
    requested_lease: Duration::from_secs(30),
    cohort: None,
    recovery_seconds: 12,
    token_slack: 0,
    load_min: 5.0,
    has: &[COMMON, &[SingleServer, ImmediateRemoval]],
    start: |worker, _| {
        let server = setup().start();
        start(worker, &server.url(), vec![server])
    },
    wait_until_ready: |testbed| {
        testbed
            .servers_of::<Server>()
            .into_iter()
            .for_each(Server::serves);
        Ok(())
    },
    plant,
    verify_and_remove,
    count_entries: |testbed| {
        let servers = testbed.servers_of::<Server>();
        let replies = |server: &&Server| {
            let reply = server.request("mntr");
            reply.is_ok_and(|reply| reply.contains(NODES))
        };
        let serving = servers.into_iter().find(replies);
        Ok(serving.map_or(0, |server| server.count(NODES)))
    },
    check_clean,
};

/// Opens the store of running servers and puts a wire before each of them.
pub(super) fn start(worker: &str, url: &str, servers: impl Servers) -> Result<Testbed> {
    let url = format!("{url}?{SETTINGS}");
    // On a busy machine a server that serves may take longer to open a session than a client waits.
    let mut testbed = until("a session", || Ok(Testbed::at(worker, &url).ok()))?;
    testbed.servers = Box::new(servers);

    testbed.wires = testbed
        .servers_of::<Server>()
        .iter()
        .map(|server| Wire::to(server.address()))
        .collect();
    let hosts: Vec<String> = testbed.wires.iter().map(Wire::address).collect();
    testbed.worker_url = format!("zookeeper://{}?{SETTINGS}", hosts.join(","));
    Ok(testbed)
}

/// The set-up of a server.
pub(super) fn setup() -> ZooKeeperSetup {
    Server::setup().tick(500)
}

fn plant(testbed: &Testbed) -> Result<()> {
    with_client(testbed, async |client| {
        let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(CANARY_NODE, CANARY.as_bytes(), &mode).await?;
        Ok(())
    })
}

fn verify_and_remove(testbed: &Testbed) -> Result<usize> {
    with_client(testbed, async |client| {
        let (data, stat) = match client.get_data(CANARY_NODE).await {
            Err(Error::NoNode) => return Ok(1),
            found => found?,
        };
        ensure!(
            *data == *CANARY.as_bytes() && stat.version == 0,
            "the canary node was changed: {stat:?}"
        );
        ensure!(
            stat.num_children == 0,
            "the canary node has children: {stat:?}"
        );
        client.delete(CANARY_NODE, None).await?;
        Ok(0)
    })
}

/// Checks that no node of a dead client is left on the leader, and that the queues are empty.
fn check_clean(backend: &Backend, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
    testbed.hold_each_once(last)?;
    let begun = Instant::now();
    let leader = testbed.servers::<Ensemble>().map_or(0, Ensemble::leader);
    let server = testbed.servers_of::<Server>()[leader];
    until("all nodes of ended workers to disappear", || {
        ensure!(
            begun.elapsed() < ORPHANS_MAX,
            "nodes of ended workers remain after {:?}",
            begun.elapsed()
        );
        Ok((server.count("zk_ephemerals_count") == 0).then_some(()))
    })?;

    wait_for_empty_queues(backend, testbed, last)
}

/// Runs `work` in a session of its own.
fn with_client<T>(testbed: &Testbed, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let addresses = testbed
        .servers_of::<Server>()
        .into_iter()
        .map(Server::address)
        .collect::<Vec<String>>()
        .join(",");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let connect = || {
        runtime.block_on(
            Client::connector()
                .with_session_timeout(CANARY_SESSION)
                .connect(&addresses),
        )
    };

    // While the servers elect a leader, connecting may take a few tries.
    let client = until("a session", || Ok(connect().ok()))?;
    runtime.block_on(work(&client))
}

impl TestedServer for Server {
    fn kill(&mut self) {
        Self::kill(self);
    }

    fn restart(&mut self) {
        self.start_after_kill();
    }

    fn pause(&self) {
        Self::pause(self);
    }

    fn resume(&self) {
        Self::resume(self);
    }

    fn folder(&self) -> &Path {
        Self::folder(self)
    }
}
