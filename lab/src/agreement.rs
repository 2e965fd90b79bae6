//! Whether ZooKeeper servers agree on what they have written, while their leader is killed again and again. No lock is involved:
//! a lock on servers that do not agree keeps nothing apart.

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

const LASTING: CreateOptions<'static> =
    CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
const PASSING: CreateOptions<'static> =
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const FOLDER: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// Nodes that stay, and nodes of sessions.
const FOLDERS: [&str; 2] = ["/lasting", "/passing"];

const WRITERS: usize = 12;
/// Nodes of a session at a time.
const MINE_MAX: usize = 8;
/// Servers are started from nothing after so many kills.
const KILLS_PER_LIFE: usize = 25;
/// How long servers that know different nodes have time to agree.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Of what servers lack, so much is told.
const REPORTED_MAX: usize = 10;

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreement {
    /// How often the leader was killed.
    pub kills: usize,
    /// How many writes were acknowledged.
    pub writes: usize,
    /// In how many lives of three servers they did not agree.
    pub broken: usize,
}

#[derive(Debug, Default)]
struct Shared {
    pause: AtomicBool,
    end: AtomicBool,
    /// Writers with a question under way.
    busy: AtomicUsize,
    writes: AtomicUsize,
    /// Lasting nodes that servers have acknowledged.
    acknowledged: Mutex<BTreeSet<String>>,
}

/// Kills leaders so often; what servers kept that did not agree is copied to the folder.
///
/// # Errors
/// If servers do not serve.
pub fn agreement(
    release: ZooKeeperRelease,
    kills: usize,
    random: &mut Random,
    folder: &Path,
) -> Result<Agreement> {
    let mut seen = Agreement::default();
    while seen.kills < kills {
        let life = life(
            release,
            KILLS_PER_LIFE.min(kills - seen.kills),
            random,
            folder,
        )?;
        seen.kills += life.kills;
        seen.writes += life.writes;
        seen.broken += life.broken;
        println!(
            "{} kills, {} writes, {} times servers disagreed or said so",
            seen.kills, seen.writes, seen.broken
        );
    }
    Ok(seen)
}

/// Until they disagree, or enough leaders were killed.
fn life(
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
    let mut life = Agreement::default();
    while life.kills < kills && life.broken == 0 {
        // The pace of the faults; nothing is waited for.
        std::thread::sleep(Duration::from_millis(100 + random.below(1_500)));
        let leader = ensemble.leader();
        ensemble.server_mut(leader).kill();
        std::thread::sleep(Duration::from_millis(100 + random.below(800)));
        ensemble.server_mut(leader).restart();
        life.kills += 1;
        // Two in a row, now and then.
        if random.below(3) > 0 || life.kills == kills {
            continue;
        }
        let _leader = ensemble.leader();
        if let Some(how) = runtime.block_on(disagreement(&ensemble, &shared))? {
            life.broken = 1;
            println!("after {} kills, and {TIMEOUT:?}:\n{how}", life.kills);
            (0..ensemble.count())
                .try_for_each(|one| keep_folder(ensemble.server(one).folder(), folder))?;
        }
    }
    shared.end.store(true, SeqCst);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Agreement {
        writes: shared.writes.load(SeqCst),
        ..life
    })
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
        match Client::connector()
            .with_session_timeout(Duration::from_secs(4))
            .connect(cluster)
            .await
        {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > Duration::from_secs(30) => {
                return Err(error).context("no session");
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// One session after another, each until it has ended.
async fn write(number: usize, cluster: String, shared: Arc<Shared>) {
    while !shared.end.load(SeqCst) {
        let Ok(client) = connect(&cluster).await else {
            continue;
        };
        let mut mine = Vec::new();
        while !shared.end.load(SeqCst) {
            if shared.pause.load(SeqCst) {
                sleep(Duration::from_millis(5)).await;
                continue;
            }
            shared.busy.fetch_add(1, SeqCst);
            let done = write_once(&client, number, &mut mine, &shared).await;
            shared.busy.fetch_sub(1, SeqCst);
            if matches!(done, Err(Error::SessionExpired | Error::ClientClosed)) {
                break;
            }
            sleep(Duration::from_millis(3)).await;
        }
    }
}

async fn write_once(
    client: &Client,
    number: usize,
    mine: &mut Vec<String>,
    shared: &Shared,
) -> Result<(), Error> {
    let [lasting, passing] = FOLDERS.map(|folder| format!("{folder}/{number}-"));
    let acknowledged = || shared.writes.fetch_add(1, SeqCst);
    let (_, sequence) = client.create(&lasting, b"", &LASTING).await?;
    acknowledged();
    shared
        .acknowledged
        .lock()
        .expect("nobody panics with it")
        .insert(format!("{lasting}{sequence}"));
    let (_, sequence) = client.create(&passing, b"", &PASSING).await?;
    acknowledged();
    mine.push(format!("{passing}{sequence}"));
    if mine.len() > MINE_MAX {
        client.delete(&mine.remove(0), None).await?;
        acknowledged();
    }
    Ok(())
}

/// What servers do not agree on, once nobody writes any more and they had time to.
async fn disagreement(ensemble: &Ensemble, shared: &Shared) -> Result<Option<String>> {
    shared.pause.store(true, SeqCst);
    let begun = Instant::now();
    while shared.busy.load(SeqCst) > 0 {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "questions without an answer"
        );
        sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    // Nodes of sessions go at any time, so what servers differ in must be the same each time.
    let mut missing = lacking(ensemble).await?;
    while !missing.is_empty() && begun.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(300)).await;
        let again = self::lacking(ensemble).await?;
        missing.retain(|one| again.contains(one));
    }
    shared.pause.store(false, SeqCst);
    Ok(was_printed(ensemble, shared, &missing))
}

/// Nodes that a server lacks and another has, with the number of the server.
async fn lacking(ensemble: &Ensemble) -> Result<BTreeSet<(usize, String)>> {
    let mut all = Vec::new();
    for number in 0..ensemble.count() {
        all.push(nodes(&ensemble.server(number).address()).await?);
    }
    let any: BTreeSet<&String> = all.iter().flatten().collect();
    let of_one = |(number, one): (usize, &BTreeSet<String>)| {
        any.iter()
            .filter(|name| !one.contains(**name))
            .map(|name| (number, (*name).clone()))
            .collect::<Vec<_>>()
    };
    Ok(all.iter().enumerate().flat_map(of_one).collect())
}

/// What servers do not agree on, and what they have logged of it themselves.
fn was_printed(
    ensemble: &Ensemble,
    shared: &Shared,
    missing: &BTreeSet<(usize, String)>,
) -> Option<String> {
    let acknowledged = shared.acknowledged.lock().expect("nobody panics with it");
    let lacks = missing.iter().take(REPORTED_MAX).map(|(number, name)| {
        let known = if acknowledged.contains(name) {
            ", which was acknowledged"
        } else {
            ""
        };
        format!("server {number} lacks {name}{known}")
    });
    let doubts = (0..ensemble.count()).flat_map(|number| {
        let server = ensemble.server(number);
        let role = server.mode().unwrap_or_default();
        server
            .election_log()
            .into_iter()
            .map(move |line| format!("server {number}, {role}, says: {line}"))
    });
    let lines: Vec<String> = lacks.chain(doubts).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// All nodes that one server knows, when it has heard what the leader knew.
async fn nodes(address: &str) -> Result<BTreeSet<String>> {
    let client = connect(address).await?;
    let look = async {
        client.sync("/").await?;
        let mut seen = BTreeSet::new();
        for folder in FOLDERS {
            seen.extend(
                client
                    .list_children(folder)
                    .await?
                    .into_iter()
                    .map(|name| format!("{folder}/{name}")),
            );
        }
        Ok::<_, Error>(seen)
    };
    Ok(timeout(Duration::from_secs(20), look)
        .await
        .context("no answer")??)
}
