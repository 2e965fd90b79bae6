//! The stores that the matrix tests: one file for each has its [`Backend`], and [`BACKENDS`] lists
//! them.

mod cluster;
mod disk;
mod ensemble;
pub mod file;
mod plain;
pub(crate) mod postgres;
pub mod redis;
mod redisson;
pub mod redlock;
pub(crate) mod replica;
mod sentinel;
mod zookeeper;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::faults::Requirement;
use crate::{Testbed, WorkerConfig, until_within};

pub(crate) use disk::Disk;

/// All backends, in the order of the report.
pub const BACKENDS: &[&Backend] = &[
    &file::FILE,
    &redis::SINGLE,
    &redis::COHORT,
    &replica::REPLICA,
    &sentinel::PLAIN,
    &sentinel::REPLICATED,
    &sentinel::WAITING,
    &cluster::CLUSTER,
    &plain::PLAIN,
    &redisson::LOCK,
    &redisson::READ_WRITE,
    &redisson::SEMAPHORE,
    &redlock::REDLOCK,
    &postgres::SINGLE,
    &zookeeper::SINGLE,
    &ensemble::ENSEMBLE,
];

/// A store as the lab runs it.
#[derive(Debug)]
pub struct Backend {
    /// The name in commands and tables.
    pub name: &'static str,
    /// How long the store keeps a claim after its last renewal: the lease, or the session.
    pub lease: Duration,
    /// The lease that workers request.
    pub requested_lease: Duration,
    /// How many times the threads of a worker pass a hold on. `None` if every acquire is a claim.
    pub cohort: Option<u32>,
    /// Within how many seconds after a fault every name is granted again, on a busy machine.
    pub recovery_seconds: u64,
    /// How far tokens may fall when the server loses its data. It is not zero where the store does
    /// not promise rising tokens: the clients then derive them from their clocks, in nanoseconds.
    pub token_slack: u64,
    /// The fewest acquisitions per second without a fault. A run with fewer proves nothing. It is a
    /// small part of what an idle machine reaches, because two cells and other tests run at once.
    pub load_min: f64,
    /// The capabilities that faults need and checkers rely on.
    pub has: &'static [&'static [Capability]],
    /// Starts the servers with the set-up that a fault requires, for workers with this program.
    ///
    /// With [`Capability::Network`] there is a wire before each server. It is in
    /// [`Testbed::wires`], and `worker_url` leads through it. The client that inspects has the URL
    /// without wires.
    pub start: fn(&str, Requirement) -> Result<Testbed>,
    /// Waits until every server serves and its reply counts. Faults that restart servers call it.
    pub wait_until_ready: fn(&Testbed) -> Result<()>,
    /// Puts data of another application beside the locks: the canaries, whose names are near those
    /// of the locks.
    pub plant: fn(&Testbed) -> Result<()>,
    /// Removes the canaries and returns how many were missing, as `FLUSHALL` deletes them too. A
    /// canary that was changed is an error.
    ///
    /// Shows S13.
    pub verify_and_remove: fn(&Testbed) -> Result<usize>,
    /// Counts what the store keeps for long: keys, nodes, rows or files. A soak checks that they do
    /// not grow in number.
    pub count_entries: fn(&Testbed) -> Result<u64>,
    /// Checks that the workers, which have all ended, left nothing behind in the store: no claim,
    /// no key without an expiry, no connection and no subscription.
    ///
    /// Shows L5.
    pub check_clean: fn(&Backend, &Testbed, &WorkerConfig) -> Result<()>,
}

impl Backend {
    /// Whether the store has a capability.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.has.iter().any(|some| some.contains(&capability))
    }

    /// Whether the store has one of these capabilities.
    #[must_use]
    pub fn has_any(&self, capabilities: &[Capability]) -> bool {
        capabilities.iter().any(|one| self.has(*one))
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// A property of a store that a fault needs or a checker relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The store is a folder.
    Folder,
    /// Workers reach the servers through wires.
    Network,
    /// A server can be killed, restarted and paused.
    ServerProcess,
    /// A server can have its own wall clock.
    ServerClock,
    /// The servers accept commands that change their state.
    StateCommands,
    /// The servers are those of Redis, with faults of its own.
    RedisServer,
    /// One server is all: its data is the only copy.
    SingleServer,
    /// The servers know nothing of each other: a minority may lose its data.
    IndependentServers,
    /// The locks are keys in the format of other libraries.
    PlainKeys,
    /// Every key of a lock expires.
    ExpiringKeys,
    /// Tokens rise also when the clock of a server falls.
    SteadyTokens,
    /// A replica can take the place of the server.
    Replica,
    /// A replica is promoted when the master is lost, without a request.
    Failover,
    /// Other processes watch the servers, and promote the replica.
    Watched,
    /// The master grants also while its replicas lag.
    LaggingReplicas,
    /// A replica has each grant before the client receives it.
    ReplicatedGrants,
    /// A new master grants nothing until earlier holds have ended.
    WaitsAfterFailover,
    /// The locks are divided among several servers.
    Shards,
    /// A majority of several servers decides.
    Majority,
    /// One of the servers leads.
    Leader,
    /// Clients have sessions.
    Sessions,
    /// The disk of the store can be made small.
    SmallDisk,
    /// A grant is on disk before its client has it.
    DurableGrants,
    /// A client waits for a server that can be written, or for its commits, as for one that it cannot
    /// reach.
    WritableServers,
    /// The store grants claims in order of arrival.
    FifoQueue,
    /// A released claim is gone when its release returns.
    ImmediateRemoval,
    /// A server that crashes may forget the releases of its last second.
    UnsyncedReleases,
    /// A client cannot renew over connections that the server closes one after another.
    LastingConnections,
}

/// The content of every canary.
const CANARY: &str = "data of another application";

/// Waits until no queue has an entry. Where leases end claims, a claim that was abandoned during a
/// fault may remain for one more lease.
fn wait_for_empty_queues(backend: &Backend, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
    until_within(backend.lease * 4, "all queues to be empty", || {
        Ok(testbed.check_empty(&last.names).ok())
    })
}

/// Copies the folder of a server to another, for the analysis of a failed run.
pub(crate) fn keep_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status()?;
    ensure!(
        copied.success(),
        "cannot copy {} to {}",
        from.display(),
        to.display()
    );
    Ok(())
}
