//! The real kazoo and the real Curator, contending with leasehold for one lock.
//!
//! `LAB_CYCLES` is how often each party acquires it.
//!
//! Shows G-01, G-05, G-30.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use lab::{Api, Event, LockKind, Testbed, WorkerConfig, check, foreign, now, suspended, until};
use lab_servers::ZooKeeper;

use crate::WORKER;

const CYCLES: u64 = 100;

fn cycles() -> Result<u64> {
    Ok(std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?)
}

/// A library in another language.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    Kazoo,
    Curator,
}

/// A server, and the parties that contend for its lock `a`.
struct Contest {
    server: ZooKeeper,
    testbed: Testbed,
    library: Library,
    cycles: u64,
    threads: u32,
    /// Each peer with the file of its events. A full pipe would stop it.
    foreign: Vec<(Child, PathBuf)>,
    leasehold: Vec<lab::Process>,
}

impl Contest {
    fn begin(library: Library) -> Result<Self> {
        let server = ZooKeeper::setup().tick(2_000).start();
        let dialect = if library == Library::Kazoo {
            "?dialect=kazoo"
        } else {
            ""
        };
        let testbed = Testbed::at(WORKER, &format!("{}/locks{dialect}", server.url()))?;

        Ok(Self {
            server,
            testbed,
            library,
            cycles: cycles()?,
            threads: 1_000,
            foreign: Vec::new(),
            leasehold: Vec::new(),
        })
    }

    /// Starts one process of the library.
    fn foreign(&mut self, kind: &str) -> Result<()> {
        let thread = self.threads.to_string();
        let cycles = self.cycles.to_string();
        let server = self.server.address();
        let mut command = match self.library {
            Library::Kazoo => foreign::python(&peers().join("kazoo_peer.py")),
            Library::Curator => java(),
        };
        command.args([&server, "/locks/a", kind, &thread, &cycles]);
        if self.library == Library::Curator {
            command.arg(suspended().to_string());
        }

        let events = self.testbed.scratch_file();
        command.stdout(File::create(&events)?);
        let child = command.spawn().context("cannot start a peer")?;
        self.foreign.push((child, events));
        self.threads += 1;
        Ok(())
    }

    /// Starts one process of leasehold.
    fn leasehold(&mut self, kind: LockKind) -> Result<()> {
        let config = WorkerConfig {
            kind,
            api: Api::Async,
            cycles: self.cycles,
            ..WorkerConfig::default()
        };
        self.leasehold.push(self.testbed.start(config)?);
        Ok(())
    }

    /// Waits for all parties, and checks their events.
    ///
    /// Each party must have held the lock in every cycle, and the queue must be empty.
    fn finish(&mut self) -> Result<()> {
        let parties = (self.foreign.len() + self.leasehold.len()) as u64;
        let begun = now();
        let mut events: Vec<Event> = Vec::new();
        for (mut peer, file) in std::mem::take(&mut self.foreign) {
            let status = peer.wait()?;
            ensure!(status.success(), "a peer failed: {status}");
            for line in fs::read_to_string(file)?.lines() {
                events.push(line.parse()?);
            }
        }
        for process in std::mem::take(&mut self.leasehold) {
            events.extend(process.finish()?);
        }

        let holds = check::all(&events)?.len() as u64;
        let millis = (now() - begun) / 1_000_000;
        println!("{holds} holds of {parties} parties in {millis} ms");
        let cycles = self.cycles;
        ensure!(
            holds == parties * cycles,
            "{holds} holds of {parties} parties with {cycles} cycles each"
        );
        self.testbed.check_empty(&["a".to_owned()])
    }
}

pub(crate) fn java() -> Command {
    /// The folder of the compiled program, for all tests of this process.
    static COMPILED: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("curator");
        let mut javac = Command::new("javac");
        javac
            .args(["-cp", &foreign::curator(), "-d"])
            .arg(&folder)
            .arg(peers().join("CuratorPeer.java"));
        let done = javac
            .status()
            .expect("javac is missing: `apt-get install default-jdk-headless`");
        assert!(done.success(), "the program for Curator cannot be compiled");
        folder
    });

    let mut command = Command::new("java");
    let class_path = format!("{}:{}", COMPILED.display(), foreign::curator());
    command.args([
        "-Xmx64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        &class_path,
        "CuratorPeer",
    ]);
    command.stderr(Stdio::null());
    command
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers")
}

/// The kinds of lock of two parties: as the peers name them, and as leasehold does.
type Kinds = [(&'static str, LockKind); 2];

const MUTEX: Kinds = [("mutex", LockKind::Mutex), ("mutex", LockKind::Mutex)];
const RWLOCK: Kinds = [("reader", LockKind::Reader), ("writer", LockKind::Writer)];

/// Two processes of the library contend with two of leasehold.
fn exclude_each_other(library: Library, kinds: Kinds) -> Result<()> {
    let mut contest = Contest::begin(library)?;

    for (peer, _) in kinds {
        contest.foreign(peer)?;
    }
    for (_, kind) in kinds {
        contest.leasehold(kind)?;
    }
    contest.finish()
}

#[test]
fn curator_mutex_and_leasehold_exclude_each_other() -> Result<()> {
    exclude_each_other(Library::Curator, MUTEX)
}

#[test]
fn curator_rwlock_and_leasehold_exclude_each_other() -> Result<()> {
    exclude_each_other(Library::Curator, RWLOCK)
}

/// Curator acquires the lock while the numbers of its node run out.
///
/// leasehold removes the node when it is empty, and both continue in the new one.
#[test]
fn curator_goes_on_in_the_node_that_is_made_again() -> Result<()> {
    // leasehold's claims withdraw when the node has few sequence numbers left.
    const EXHAUSTED_FROM: i32 = i32::MAX - (1 << 20) + 1;
    let mut contest = Contest::begin(Library::Curator)?;
    let lock = contest.testbed.locks().mutex("a");
    contest
        .testbed
        .run(async { lock.acquire().await?.release().await })?;
    let counters = [("/locks/a", EXHAUSTED_FROM - 50)];
    contest.server.restart_with_child_counters(&counters);

    contest.foreign("mutex")?;
    until("the peer to have a claim", || {
        Ok((contest.server.count("zk_ephemerals_count") > 0).then_some(()))
    })?;
    contest.leasehold(LockKind::Mutex)?;
    contest.leasehold(LockKind::Mutex)?;
    contest.finish()?;

    let node = contest.testbed.run(async {
        let client = zookeeper_client::Client::connect(&contest.server.address()).await?;
        client.check_stat("/locks/a").await
    })?;
    // The value is negative for a node that has given half of all numbers.
    let is_new = node.is_some_and(|node| node.cversion > 0);
    ensure!(is_new, "the node was not replaced: {node:?}");
    Ok(())
}

#[test]
fn kazoo_mutex_and_leasehold_exclude_each_other() -> Result<()> {
    exclude_each_other(Library::Kazoo, MUTEX)
}

#[test]
fn kazoo_rwlock_and_leasehold_exclude_each_other() -> Result<()> {
    exclude_each_other(Library::Kazoo, RWLOCK)
}
