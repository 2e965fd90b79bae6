//! One Redis server.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use lab_servers::{Cluster, Redis, Reply, Setup, Wire};

use super::Capability::{
    ExpiringKeys, FifoQueue, ImmediateRemoval, LastingConnections, Network, RedisServer,
    ServerClock, ServerProcess, SingleServer, SmallDisk, StateCommands, SteadyTokens,
};
use super::{Backend, CANARY, Capability, Disk, disk, wait_for_empty_queues};
use crate::faults::Requirement;
use crate::testbed::Server;
use crate::{Testbed, WorkerConfig, hostile_names, until};

const LEASE: Duration = Duration::from_millis(1_500);
pub(super) const SETTINGS: &str = "crash-grace=500ms";
/// The user of the workers where a fault revokes rights.
pub(crate) const USER: &str = "app";
/// The rights of the workers' user.
const RIGHTS: &str = "app on >secret ~* &* +@all";
/// Names near those of the matrix's locks, and near their keys.
const CANARY_KEYS: [&str; 4] = ["a:other", "{a}:other", "leasehold", "leasehold-other"];
/// The connections of the inspecting client, each with its channel.
const OBSERVERS: usize = 2;
/// In milliseconds: the last key of a name expires two days after its last waiter.
const LIFE_MAX: i64 = 2 * 24 * 60 * 60 * 1000;
/// In milliseconds: the record of a name expires 40 days after its last use.
const RECORD_LIFE_MAX: i64 = 20 * LIFE_MAX;
/// A loading server spends two milliseconds on each key and replies after every key.
const SLOW_START: [(&str, &str); 3] = [
    ("key-load-delay", "2000"),
    ("loading-process-events-interval-bytes", "1024"),
    ("rdbcompression", "no"),
];

/// What one server gives in every format.
pub(super) const ONE_SERVER: &[Capability] = &[
    Network,
    ServerProcess,
    StateCommands,
    RedisServer,
    SingleServer,
    ImmediateRemoval,
];
/// The set-ups of its process, which the format of the locks does not change.
pub(super) const SET_UPS: &[Capability] = &[ServerClock, SmallDisk];
/// The properties of leasehold's own format, with a cohort too.
const OWN_FORMAT: &[Capability] = &[ExpiringKeys, LastingConnections];

/// `redis:`, one server.
pub(super) const SINGLE: Backend = Backend {
    name: "redis",
    lease: LEASE,
    requested_lease: LEASE,
    cohort: None,
    recovery_seconds: 10,
    token_slack: 0,
    load_min: 10.0,
    has: &[ONE_SERVER, SET_UPS, OWN_FORMAT, &[SteadyTokens, FifoQueue]],
    start: |worker, requires| start_behind_wire(worker, requires, SETTINGS),
    wait_until_ready: |_| Ok(()),
    plant: |testbed| {
        plant(testbed);
        Ok(())
    },
    verify_and_remove,
    count_entries: |testbed| Ok(masters(testbed).into_iter().map(count_lasting_keys).sum()),
    check_clean: |backend, testbed, last| {
        // A request that was in flight when the fault came ends with its lease. A reader does not
        // wait for it.
        wait_for_empty_queues(backend, testbed, last)?;
        check_clean(testbed, last)
    },
};

/// The threads of a worker pass a hold on. The queue has one claim for all of them, so it does not
/// show their order.
pub(super) const COHORT: Backend = Backend {
    name: "redis-cohort",
    cohort: Some(3),
    has: &[ONE_SERVER, OWN_FORMAT],
    ..SINGLE
};

/// Starts a server whose locks are opened with these settings (`crash-grace=1s&…`).
///
/// # Errors
/// If the store cannot be opened.
pub fn start(worker: &str, setup: Setup, settings: &str) -> Result<Testbed> {
    let server = setup.start();
    let url = format!("{}?{settings}", server.url());
    Testbed::with_servers(worker, url, Vec::new(), vec![server])
}

/// Checks, after one more hold of each name, that the workers left nothing behind: each queue is
/// empty, each remaining key expires, and only the inspecting client has connections and channels.
///
/// # Errors
/// If anything else is left behind.
pub fn check_clean(testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
    testbed.hold_each_once(last)?;
    testbed.check_empty(&last.names)?;
    ensure!(
        testbed.run(testbed.locks().list("", 10))?.is_empty(),
        "the store still lists names"
    );

    let server = testbed.servers_of::<Redis>()[0];
    check_keys(server, &last.names)?;
    until("the connections of ended workers to close", || {
        Ok((clients(server) <= OBSERVERS).then_some(()))
    })?;
    check_channels(server)
}

/// Starts a server that workers reach through a wire.
pub(super) fn start_behind_wire(
    worker: &str,
    requires: Requirement,
    settings: &str,
) -> Result<Testbed> {
    let disk = if requires == Requirement::SmallDisk {
        Some(Disk::mount(disk::SERVER_SIZE)?)
    } else {
        None
    };
    let mut testbed = start(worker, setup(requires, disk.as_ref()), settings)?;

    let wire = Wire::to(testbed.servers_of::<Redis>()[0].address());
    let user = user(requires);
    testbed.worker_url = format!("redis://{user}{}?{settings}", wire.address());
    testbed.wires.push(wire);
    testbed.disk = disk;
    Ok(testbed)
}

/// The user in the URL of the workers, if they have their own.
pub(super) fn user(requires: Requirement) -> String {
    if requires == Requirement::DedicatedUser {
        format!("{USER}:secret@")
    } else {
        String::new()
    }
}

/// The set-up of a server for a fault.
pub(super) fn setup(requires: Requirement, disk: Option<&Disk>) -> Setup {
    let persistent = Redis::setup().append_only("always");

    match (requires, disk) {
        // With `always` the server would exit at the first error.
        (Requirement::SmallDisk, Some(disk)) => Redis::setup()
            .append_only("everysec")
            .config("dir", &disk.path().display().to_string())
            .config("auto-aof-rewrite-min-size", "8mb"),
        (Requirement::PersistentData, _) => persistent,
        (Requirement::SlowStart, _) => SLOW_START
            .iter()
            .fold(persistent, |setup, (key, value)| setup.config(key, value)),
        (Requirement::ServerClock, _) => Redis::setup().own_clock(),
        (Requirement::DedicatedUser, _) => Redis::setup().acl(RIGHTS),
        _ => Redis::setup(),
    }
}

/// Each canary, on each server that has it.
fn canaries(testbed: &Testbed) -> impl Iterator<Item = (&Redis, &'static str)> {
    CANARY_KEYS.into_iter().flat_map(|key| {
        let servers = match testbed.servers::<Cluster>() {
            Ok(cluster) => vec![cluster.node(cluster.master_of(cluster.slot_of(key)))],
            Err(_) => testbed.servers_of::<Redis>(),
        };
        servers.into_iter().map(move |server| (server, key))
    })
}

fn plant(testbed: &Testbed) {
    for (server, key) in canaries(testbed) {
        server.command(&["SET", key, CANARY]);
    }
}

fn verify_and_remove(testbed: &Testbed) -> Result<usize> {
    let mut missing = 0;
    for (server, key) in canaries(testbed) {
        missing += usize::from(!verify_and_remove_key(server, key)?);
    }
    Ok(missing)
}

/// Returns whether the canary was there.
fn verify_and_remove_key(server: &Redis, key: &str) -> Result<bool> {
    let found = server.command(&["GET", key]);
    if found.is_nil() {
        return Ok(false);
    }
    let ttl = server.command(&["PTTL", key]).int();
    ensure!(
        found.bytes() == CANARY.as_bytes() && ttl == -1,
        "the canary {key} was changed: {found:?}, {ttl}"
    );
    server.command(&["DEL", key]);
    Ok(true)
}

/// Checks, after one more hold of each name, that every key expires and the queues are empty.
pub(super) fn check_clean_by_lease(
    backend: &Backend,
    testbed: &Testbed,
    last: &WorkerConfig,
) -> Result<()> {
    check_clean_except(&[], backend, testbed, last)
}

/// Checks what [`check_clean_by_lease`] does, except for keys that never expire.
pub(super) fn check_clean_except(
    permanent: &[String],
    backend: &Backend,
    testbed: &Testbed,
    last: &WorkerConfig,
) -> Result<()> {
    testbed.hold_each_once(last)?;
    for master in masters(testbed) {
        for key in master.command(&["KEYS", "*"]).texts() {
            if permanent.iter().any(|permanent| permanent == key) {
                continue;
            }
            let ttl = master.command(&["PTTL", key]).int();
            ensure!(ttl != -1, "the key {key} never expires");
        }
    }
    wait_for_empty_queues(backend, testbed, last)
}

fn check_keys(server: &Redis, names: &[String]) -> Result<()> {
    // A key lives longer by what the server's clock went back since it was written.
    let right = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let behind = (i64::try_from(right)? - server.time() / 1_000).max(0);
    for key in server.command(&["KEYS", "*"]).texts() {
        // Why the last hold of a name ended is kept for a day.
        let record = key.strip_suffix(":record");
        let name = name_of(record.or(key.strip_suffix(":ended")).unwrap_or(key));
        ensure!(
            name.is_some_and(|name| names.contains(&name)),
            "left behind: {key}"
        );
        let left = server.command(&["PTTL", key]).int();
        let life_max = record.map_or(LIFE_MAX, |_| RECORD_LIFE_MAX);
        ensure!(
            0 < left && left <= life_max + behind,
            "the key {key} remains for {left} ms"
        );
    }

    Ok(())
}

/// Returns the name of a lock's key.
fn name_of(key: &str) -> Option<String> {
    let rest = key.strip_prefix("leasehold:{")?;
    if let Some(encoded) = rest.strip_suffix('}') {
        return Some(hostile_names::decoded(encoded));
    }

    let (tag, rest) = rest.strip_suffix('~')?.split_once("}~")?;
    let tag = hostile_names::decoded(tag);
    Some(format!("{{{tag}}}{}", hostile_names::decoded(rest)))
}

/// How many connections the server has besides the one that sends this command.
fn clients(server: &Redis) -> usize {
    server.command(&["CLIENT", "LIST"]).text().lines().count() - 1
}

/// The inspecting client has a channel for grants and one for its liveness, and is the only
/// subscriber of both.
fn check_channels(server: &Redis) -> Result<()> {
    let reply = server.command(&["PUBSUB", "CHANNELS", "*"]);
    let channels = reply.texts();
    ensure!(channels.len() <= OBSERVERS, "channels: {channels:?}");
    for channel in channels {
        let subscribers = server.command(&["PUBSUB", "NUMSUB", channel]);
        ensure!(
            subscribers.list()[1].int() == 1,
            "on {channel}: {subscribers:?}"
        );
    }
    Ok(())
}

impl Server for Redis {
    fn kill(&mut self) {
        Self::kill(self);
    }

    fn restart(&mut self) {
        Self::restart(self);
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

/// The servers that are masters.
pub(crate) fn masters(testbed: &Testbed) -> Vec<&Redis> {
    let mut servers = testbed.servers_of::<Redis>();
    servers.retain(|server| server.info("replication").contains("role:master"));
    servers
}

/// Counts the keys that stay for a minute or longer. The number of the others follows from the
/// load.
fn count_lasting_keys(server: &Redis) -> u64 {
    const NO_EXPIRY: i64 = -1;
    const SHORT_LIFE_MILLIS: i64 = 60_000;
    let keys = server.command(&["KEYS", "*"]);

    // A key of a Cluster may have moved to another master since.
    let lasts = |key: &&str| match server.request(&["PTTL", key]) {
        Reply::Int(life) => life == NO_EXPIRY || life > SHORT_LIFE_MILLIS,
        _ => false,
    };
    keys.texts().into_iter().filter(lasts).count() as u64
}
