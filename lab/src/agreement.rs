//! A check whether ZooKeeper servers agree on their data while their leader is killed repeatedly.
//!
//! No lock is involved: a lock on servers that do not agree excludes no client.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use crate::Random;
use crate::backends::keep_folder;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    /// How often the leader was killed.
    pub kills: usize,
    /// How many writes were acknowledged.
    pub writes: usize,
    /// In how many ensembles the servers disagreed.
    pub broken: usize,
}

/// Kills leaders `kills` times, and checks whether the servers agree.
///
/// The data of servers that disagree are copied to `folder`.
///
/// # Errors
/// If the servers do not start or do not reply.
pub fn agreement(
    release: ZooKeeperRelease,
    kills: usize,
    random: &mut Random,
    folder: &Path,
) -> Result<Agreement> {
    let mut total = Agreement::default();
    while total.kills < kills {
        let kills = KILLS_PER_ENSEMBLE.min(kills - total.kills);
        let seen = run_ensemble(release, kills, random, folder)?;
        total.kills += seen.kills;
        total.writes += seen.writes;
        total.broken += seen.broken;

        let Agreement {
            kills,
            writes,
            broken,
        } = total;
        println!("{kills} kills, {writes} writes, {broken} ensembles disagreed or logged errors");
    }
    Ok(total)
}

/// Runs one ensemble until its servers disagree, or its leaders were killed `kills` times.
fn run_ensemble(
    release: ZooKeeperRelease,
    kills: usize,
    random: &mut Random,
    folder: &Path,
) -> Result<Agreement> {
    let mut ensemble = Ensemble::of(&ZooKeeper::setup().tick(500).release(release));
    let cluster = ensemble.url().trim_start_matches("zookeeper://").to_owned();
    let runtime = Runtime::new()?;
    runtime.block_on(make_folders(&cluster))?;
    let shared = Arc::new(Shared::default());
    for number in 0..WRITERS {
        runtime.spawn(write(number, cluster.clone(), Arc::clone(&shared)));
    }

    let mut seen = Agreement::default();
    while seen.kills < kills && seen.broken == 0 {
        kill_leader(&mut ensemble, random);
        seen.kills += 1;
        // Several kills may precede a check.
        if random.below(3) > 0 || seen.kills == kills {
            continue;
        }

        let _elected = ensemble.leader();
        if let Some(report) = runtime.block_on(disagreement(&ensemble, &shared))? {
            seen.broken = 1;
            println!("after {} kills, and {TIMEOUT:?}:\n{report}", seen.kills);
            for server in 0..ensemble.count() {
                keep_folder(ensemble.server(server).folder(), folder)?;
            }
        }
    }

    shared.end.store(true, SeqCst);
    runtime.shutdown_timeout(Duration::from_secs(1));
    seen.writes = shared.writes.load(SeqCst);
    Ok(seen)
}

/// Kills and restarts the leader. The pauses are the pace of the faults.
fn kill_leader(ensemble: &mut Ensemble, random: &mut Random) {
    std::thread::sleep(Duration::from_millis(100 + random.below(1_500)));
    let leader = ensemble.leader();
    ensemble.server_mut(leader).kill();
    std::thread::sleep(Duration::from_millis(100 + random.below(800)));
    ensemble.server_mut(leader).restart();
}

/// The state that the writers of one ensemble share.
#[derive(Debug, Default)]
struct Shared {
    pause: AtomicBool,
    end: AtomicBool,
    /// The number of writers with a request under way.
    busy: AtomicUsize,
    writes: AtomicUsize,
    /// The persistent nodes that servers have acknowledged.
    acknowledged: Mutex<BTreeSet<String>>,
}

async fn make_folders(cluster: &str) -> Result<()> {
    let client = connect(cluster).await?;
    for folder in FOLDERS {
        client.mkdir(folder, &FOLDER).await?;
    }
    Ok(())
}

async fn connect(cluster: &str) -> Result<Client> {
    let begun = Instant::now();
    loop {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(4));
        match connector.connect(cluster).await {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > Duration::from_secs(30) => {
                return Err(error).context("no session");
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Writes in one session after the other, each until it has ended.
async fn write(number: usize, cluster: String, shared: Arc<Shared>) {
    while !shared.end.load(SeqCst) {
        let Ok(client) = connect(&cluster).await else {
            continue;
        };
        let mut ephemeral = Vec::new();
        while !shared.end.load(SeqCst) {
            if shared.pause.load(SeqCst) {
                sleep(Duration::from_millis(5)).await;
                continue;
            }

            shared.busy.fetch_add(1, SeqCst);
            let done = write_once(&client, number, &mut ephemeral, &shared).await;
            shared.busy.fetch_sub(1, SeqCst);
            if matches!(done, Err(Error::SessionExpired | Error::ClientClosed)) {
                break;
            }
            sleep(Duration::from_millis(3)).await;
        }
    }
}

/// Creates a persistent and an ephemeral node, and deletes the oldest ephemeral node of many.
async fn write_once(
    client: &Client,
    number: usize,
    ephemeral: &mut Vec<String>,
    shared: &Shared,
) -> Result<(), Error> {
    let [lasting, passing] = FOLDERS.map(|folder| format!("{folder}/{number}-"));
    let count_write = || shared.writes.fetch_add(1, SeqCst);
    let (_, sequence) = client.create(&lasting, b"", &LASTING).await?;
    count_write();
    shared
        .acknowledged
        .lock()
        .expect("no panic while it is locked")
        .insert(format!("{lasting}{sequence}"));

    let (_, sequence) = client.create(&passing, b"", &PASSING).await?;
    count_write();
    ephemeral.push(format!("{passing}{sequence}"));
    if ephemeral.len() > EPHEMERAL_MAX {
        client.delete(&ephemeral.remove(0), None).await?;
        count_write();
    }
    Ok(())
}

/// Pauses the writers, gives the servers time to agree, and reports their differences.
async fn disagreement(ensemble: &Ensemble, shared: &Shared) -> Result<Option<String>> {
    shared.pause.store(true, SeqCst);
    let begun = Instant::now();
    while shared.busy.load(SeqCst) > 0 {
        let is_late = begun.elapsed() > Duration::from_secs(60);
        ensure!(!is_late, "a request has no reply");
        sleep(Duration::from_millis(5)).await;
    }

    // Ephemeral nodes disappear at any time, so only a lasting difference counts.
    let begun = Instant::now();
    let mut missing = missing_nodes(ensemble).await?;
    while !missing.is_empty() && begun.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(300)).await;
        let again = missing_nodes(ensemble).await?;
        missing.retain(|one| again.contains(one));
    }
    shared.pause.store(false, SeqCst);
    Ok(report(ensemble, shared, &missing))
}

/// Returns the nodes that a server lacks and another has, with the number of the server.
async fn missing_nodes(ensemble: &Ensemble) -> Result<BTreeSet<(usize, String)>> {
    let mut by_server = Vec::new();
    for number in 0..ensemble.count() {
        by_server.push(nodes(&ensemble.server(number).address()).await?);
    }

    let any: BTreeSet<&String> = by_server.iter().flatten().collect();
    let mut missing = BTreeSet::new();
    for (number, nodes) in by_server.iter().enumerate() {
        let lacks = any.iter().filter(|node| !nodes.contains(**node));
        missing.extend(lacks.map(|node| (number, (*node).clone())));
    }
    Ok(missing)
}

/// Describes the missing nodes and the errors in the servers' logs; `None` without any.
fn report(
    ensemble: &Ensemble,
    shared: &Shared,
    missing: &BTreeSet<(usize, String)>,
) -> Option<String> {
    let acknowledged = shared
        .acknowledged
        .lock()
        .expect("no panic while it is locked");
    let mut lines = Vec::new();
    for (number, node) in missing.iter().take(REPORTED_MAX) {
        let suffix = if acknowledged.contains(node) {
            ", which was acknowledged"
        } else {
            ""
        };
        lines.push(format!("server {number} lacks {node}{suffix}"));
    }

    for number in 0..ensemble.count() {
        let server = ensemble.server(number);
        let role = server.mode().unwrap_or_default();
        for line in server.election_log() {
            lines.push(format!("server {number}, {role}, logged: {line}"));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns all nodes of one server after it has received the data of the leader.
async fn nodes(address: &str) -> Result<BTreeSet<String>> {
    let client = connect(address).await?;
    let list = async {
        client.sync("/").await?;
        let mut nodes = BTreeSet::new();
        for folder in FOLDERS {
            let children = client.list_children(folder).await?;
            nodes.extend(children.iter().map(|name| format!("{folder}/{name}")));
        }
        Ok::<_, Error>(nodes)
    };
    let listed = timeout(Duration::from_secs(20), list).await;
    Ok(listed.context("a server does not reply")??)
}

const LASTING: CreateOptions<'static> =
    CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
const PASSING: CreateOptions<'static> =
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const FOLDER: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// The folders of persistent and of ephemeral nodes.
const FOLDERS: [&str; 2] = ["/lasting", "/passing"];

const WRITERS: usize = 12;

/// How many ephemeral nodes a session has at a time.
const EPHEMERAL_MAX: usize = 8;

/// A new ensemble begins after this number of kills.
const KILLS_PER_ENSEMBLE: usize = 25;

/// How long servers with different nodes have time to agree.
const TIMEOUT: Duration = Duration::from_secs(8);

/// How many missing nodes a report names.
const REPORTED_MAX: usize = 10;
