//! The real kazoo and the real Curator, contending with us for one lock. `LAB_CYCLES` says how often each takes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use lab::{Api, Event, Face, Orders, Site, check, now};
use lab_servers::ZooKeeper;
use rustix::time::{ClockId, clock_gettime};

use crate::TAKER;

const CYCLES: u64 = 100;
/// What Java programs with Curator need.
const JARS: [&str; 7] =
    ["curator-recipes", "curator-framework", "curator-client", "guava", "zookeeper", "zookeeper-jute", "slf4j-api"];

fn cycles() -> Result<u64> {
    Ok(std::env::var("LAB_CYCLES").map_or(Ok(CYCLES), |cycles| cycles.parse())?)
}

/// A library in another language.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    Kazoo,
    Curator,
}

/// A server, and what contends for the lock `a` there.
struct Contest {
    server: ZooKeeper,
    site: Site,
    library: Library,
    cycles: u64,
    hands: u32,
    /// Each with the file that it tells in: a pipe that nobody reads would stop it when full.
    foreign: Vec<(Child, PathBuf)>,
    ours: Vec<lab::Process>,
}

impl Contest {
    fn begin(library: Library) -> Result<Self> {
        let server = ZooKeeper::setup().tick(2_000).start();
        let dialect = if library == Library::Kazoo { "?dialect=kazoo" } else { "" };
        let site = Site::at(TAKER, &format!("{}/locks{dialect}", server.url()))?;
        Ok(Self { server, site, library, cycles: cycles()?, hands: 1_000, foreign: Vec::new(), ours: Vec::new() })
    }

    /// One process of the library.
    fn foreign(mut self, kind: &str) -> Result<Self> {
        let (hand, cycles, host) = (self.hands.to_string(), self.cycles.to_string(), self.server.address());
        let mut command = match self.library {
            Library::Kazoo => python(),
            Library::Curator => java(),
        };
        command.args([&host, "/locks/a", kind, &hand, &cycles]);
        if self.library == Library::Curator {
            command.arg(ahead().to_string());
        }
        let told = self.site.note();
        let child = command.stdout(File::create(&told)?).spawn().context("cannot start a peer")?;
        self.foreign.push((child, told));
        self.hands += 1;
        Ok(self)
    }

    /// One process of ours.
    fn ours(mut self, face: Face) -> Result<Self> {
        let orders = Orders { face, api: Api::Async, cycles: self.cycles, ..Orders::default() };
        self.ours.push(self.site.start_quiet(orders)?);
        Ok(self)
    }

    /// All that was told, when all are done: each had the lock as often as it wanted, and nothing is left.
    fn end(self) -> Result<()> {
        let parties = (self.foreign.len() + self.ours.len()) as u64;
        let mut told: Vec<Event> = Vec::new();
        let begun = now();
        for (mut peer, file) in self.foreign {
            let status = peer.wait()?;
            ensure!(status.success(), "a peer failed: {status}");
            for line in fs::read_to_string(file)?.lines() {
                told.push(line.parse()?);
            }
        }
        for process in self.ours {
            told.extend(process.finish()?);
        }
        let holds = check::all(&told)?.len() as u64;
        println!("{holds} holds of {parties} in {} ms", (now() - begun) / 1_000_000);
        ensure!(holds == parties * self.cycles, "{holds} holds of {parties}, each {} times", self.cycles);
        self.site.check_empty(&["a".to_owned()])
    }
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.arg(peers().join("kazoo_peer.py"));
    command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/python"));
    command
}

fn java() -> Command {
    /// Where the compiled program is, for all tests of this process.
    static COMPILED: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("curator");
        let mut javac = Command::new("javac");
        javac.args(["-cp", &class_path(), "-d"]).arg(&folder).arg(peers().join("CuratorPeer.java"));
        let done = javac.status().expect("javac is missing: `apt-get install default-jdk-headless`");
        assert!(done.success(), "the program for Curator cannot be compiled");
        folder
    });
    let mut command = Command::new("java");
    let class_path = format!("{}:{}", COMPILED.display(), class_path());
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path, "CuratorPeer"]);
    command.stderr(Stdio::null());
    command
}

fn class_path() -> String {
    JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":")
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/peers")
}

/// How far the clock of all events is ahead of the one that Java has, in nanoseconds.
fn ahead() -> u64 {
    let monotonic = clock_gettime(ClockId::Monotonic);
    let nanos = monotonic.tv_sec.unsigned_abs() * 1_000_000_000 + monotonic.tv_nsec.unsigned_abs();
    // The two are read one after the other: what was held is told to have begun no sooner than it did.
    now() - nanos
}

#[test]
fn curator_s_mutex_is_ours() -> Result<()> {
    let contest = Contest::begin(Library::Curator)?.foreign("mutex")?.foreign("mutex")?;
    contest.ours(Face::Mutex)?.ours(Face::Mutex)?.end()
}

#[test]
fn curator_s_readers_and_writers_are_ours() -> Result<()> {
    let contest = Contest::begin(Library::Curator)?.foreign("reader")?.foreign("writer")?;
    contest.ours(Face::Reader)?.ours(Face::Writer)?.end()
}

#[test]
fn kazoo_s_lock_is_our_mutex() -> Result<()> {
    let contest = Contest::begin(Library::Kazoo)?.foreign("mutex")?.foreign("mutex")?;
    contest.ours(Face::Mutex)?.ours(Face::Mutex)?.end()
}

#[test]
fn kazoo_s_readers_and_writers_are_ours() -> Result<()> {
    let contest = Contest::begin(Library::Kazoo)?.foreign("reader")?.foreign("writer")?;
    contest.ours(Face::Reader)?.ours(Face::Writer)?.end()
}
