//! A store of each kind with all that can be done to it: its servers, and the wires by which takers reach them.

mod disk;
mod ensemble;
mod pair;

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab_servers::{Clock, Redis, Setup, Wire, ZooKeeper, ZooKeeperSetup};

use crate::fault_run::PROCESSES;
use crate::faults::Requirement;
use crate::folder_testbed::Disk;
use crate::{FolderTestbed, RedisTestbed, RedlockTestbed, WorkerConfig, until, until_within};
pub use ensemble::Servers;
pub use pair::Pair;

/// The kinds of stores that the matrix knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// `file:`
    File,
    /// `redis:`, one server.
    Redis,
    /// `redis:`, a server with a replica that takes its place.
    Replica,
    /// `redis:` with `dialect=plain`.
    Plain,
    /// `redlock:`, five masters.
    Redlock,
    /// `zookeeper:`, one server.
    ZooKeeper,
    /// `zookeeper:`, three servers.
    Ensemble,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::File,
        Self::Redis,
        Self::Replica,
        Self::Plain,
        Self::Redlock,
        Self::ZooKeeper,
        Self::Ensemble,
    ];

    /// As it is called in commands and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Redis => "redis",
            Self::Replica => "replica",
            Self::Plain => "plain",
            Self::Redlock => "redlock",
            Self::ZooKeeper => "zookeeper",
            Self::Ensemble => "ensemble",
        }
    }

    /// For how long a claim is kept that nothing is heard of: the lease that takers ask for, or their session.
    #[must_use]
    pub fn lease(self) -> Duration {
        Duration::from_millis(match self {
            Self::File | Self::Redis | Self::Replica | Self::Plain => 1_500,
            Self::Redlock => 1_000,
            Self::ZooKeeper | Self::Ensemble => 2_000,
        })
    }

    /// How long a guard may at most count on what it has heard; `None` where only a crash ends a hold.
    #[must_use]
    pub fn validity(self) -> Option<Duration> {
        (self != Self::File).then(|| self.lease())
    }

    /// By how much tokens may fall when the server has forgotten all: where nobody has promised that they rise, they are times that
    /// clients guess, in nanoseconds.
    #[must_use]
    pub fn token_slack(self) -> u64 {
        if self == Self::Plain {
            1_000_000_000
        } else {
            0
        }
    }

    /// Acquisitions per second of peace; with fewer a run shows nothing.
    #[must_use]
    pub fn load_min(self) -> f64 {
        match self {
            Self::File => 20.0,
            Self::Redis | Self::Replica => 10.0,
            Self::Plain | Self::Redlock | Self::ZooKeeper => 5.0,
            Self::Ensemble => 2.0,
        }
    }

    fn settings(self) -> &'static str {
        match self {
            Self::File => "",
            Self::Redis | Self::Replica => "?crash-grace=500ms",
            Self::Plain => "?dialect=plain&tokens=on",
            Self::Redlock => "?longest-lease=1000ms",
            Self::ZooKeeper | Self::Ensemble => "?session=2s",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What keeps the locks.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a run")]
pub enum Service {
    /// A folder.
    Folder(FolderTestbed),
    /// One Redis server.
    Redis(RedisTestbed),
    /// Two, of which one follows the other.
    Pair(Pair),
    /// Five Redis masters.
    Masters(RedlockTestbed),
    /// ZooKeeper servers.
    Servers(Servers),
}

/// A service, wires before it, and the way takers find it by these.
#[derive(Debug)]
pub struct Testbed {
    /// Which kind.
    pub backend: Backend,
    /// What is treated badly.
    pub service: Service,
    /// The wires between takers and servers, one for each server; those of the masters are with these.
    wires: Vec<Wire>,
    /// The URL for takers.
    through_wire: String,
    /// What it was made for.
    pub requires: Requirement,
    // After the service, which uses it.
    disk: Option<Disk>,
    /// The wall clocks of the crew, if they have their own.
    pub clocks: Vec<Clock>,
}

/// The user that takers are where rights are a matter.
pub const USER: &str = "app";
const RIGHTS: &str = "app on >secret ~* &* +@all";

impl Testbed {
    /// One that is ready for a kind of fault.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(worker: &str, backend: Backend, requires: Requirement) -> Result<Self> {
        let settings = backend.settings();
        let is_redis = matches!(backend, Backend::Redis | Backend::Plain);
        let disk = if is_redis && requires == Requirement::SmallDisk {
            Some(disk::of_server()?)
        } else {
            None
        };
        let setup = redis_setup(requires, disk.as_ref());
        let service = match backend {
            Backend::File if requires == Requirement::SmallDisk => {
                Service::Folder(disk::small(worker)?)
            }
            Backend::File => Service::Folder(FolderTestbed::new(worker)?),
            Backend::Redis | Backend::Plain => Service::Redis(RedisTestbed::start(
                worker,
                setup,
                settings.trim_start_matches('?'),
            )?),
            Backend::Replica => Service::Pair(Pair::start(worker, &setup, settings)?),
            Backend::Redlock => Service::Masters(RedlockTestbed::of(
                worker,
                &setup,
                settings.trim_start_matches('?'),
            )?),
            Backend::ZooKeeper => {
                Service::Servers(Servers::one(worker, &zookeeper_setup(requires), settings)?)
            }
            Backend::Ensemble => Service::Servers(Servers::three(
                worker,
                &zookeeper_setup(requires),
                settings,
            )?),
        };
        let wires: Vec<Wire> = match &service {
            Service::Redis(testbed) => vec![Wire::to(testbed.redis.address())],
            Service::Servers(servers) => servers
                .each()
                .map(|server| Wire::to(server.address()))
                .collect(),
            Service::Folder(_) | Service::Pair(_) | Service::Masters(_) => Vec::new(),
        };
        let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
        let user = if requires == Requirement::DedicatedUser {
            format!("{USER}:secret@")
        } else {
            String::new()
        };
        let by_wire = match backend {
            Backend::Redis | Backend::Plain => {
                format!("redis://{user}{}{settings}", hosts.join(","))
            }
            Backend::ZooKeeper | Backend::Ensemble => {
                format!("zookeeper://{}{settings}", hosts.join(","))
            }
            Backend::Redlock if requires == Requirement::DedicatedUser => service_testbed(&service)
                .url()
                .replacen("://", &format!("://{user}"), 1),
            Backend::File | Backend::Replica | Backend::Redlock => String::new(),
        };
        let mut testbed = Self {
            backend,
            service,
            wires,
            through_wire: by_wire,
            requires,
            disk,
            clocks: Vec::new(),
        };
        if requires == Requirement::WorkerClocks {
            let folder = testbed.scratch_file();
            fs::create_dir(&folder)?;
            testbed.clocks = Clock::several(&folder, PROCESSES);
        }
        Ok(testbed)
    }

    /// The small disk of a server.
    #[must_use]
    pub fn disk(&self) -> Option<&Path> {
        self.disk.as_ref().map(|disk| disk.0.path())
    }

    /// What one of the crew is started with besides the usual.
    #[must_use]
    pub fn environment(&self, number: usize) -> Vec<(String, String)> {
        let clock = self.clocks.get(number).map(Clock::environment);
        let text = |(key, value): (&str, &Path)| (key.to_owned(), value.display().to_string());
        clock.into_iter().flatten().map(text).collect()
    }

    /// What takers are told of the store.
    #[must_use]
    pub fn worker_config(&self) -> WorkerConfig {
        let lease = self.backend.lease().as_millis();
        let lease = matches!(self.service, Service::Servers(_))
            .then_some(30_000)
            .unwrap_or(lease);
        WorkerConfig {
            store: self.through_wire.clone(),
            lease_millis: Some(u64::try_from(lease).expect("a few seconds")),
            ..WorkerConfig::default()
        }
    }

    /// The wires by which takers reach the servers, one for each.
    #[must_use]
    pub fn wires(&self) -> &[Wire] {
        match &self.service {
            Service::Masters(testbed) => &testbed.wires,
            Service::Pair(pair) => std::slice::from_ref(&pair.front),
            _ => &self.wires,
        }
    }

    /// How many servers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.wires().len()
    }

    /// The Redis servers; none where there are none.
    pub fn redis(&self) -> Vec<&Redis> {
        match &self.service {
            Service::Redis(testbed) => vec![&testbed.redis],
            Service::Pair(pair) => vec![pair.master()],
            Service::Masters(testbed) => testbed.masters.iter().collect(),
            Service::Folder(_) | Service::Servers(_) => Vec::new(),
        }
    }

    /// The ZooKeeper servers.
    ///
    /// # Errors
    /// If there are none.
    pub fn servers(&mut self) -> Result<&mut Servers> {
        if let Service::Servers(servers) = &mut self.service {
            Ok(servers)
        } else {
            bail!("no ZooKeeper here")
        }
    }

    /// The wall clock of a server that has its own.
    ///
    /// # Errors
    /// If there is no server.
    pub fn clock(&self, number: usize) -> Result<&Clock> {
        match &self.service {
            Service::Servers(servers) => Ok(servers.at(number).clock()),
            _ => Ok(self.redis().get(number).context("no server here")?.clock()),
        }
    }

    /// What a server takes for the time of day, in microseconds.
    ///
    /// # Errors
    /// If it does not tell.
    pub fn time(&self, number: usize) -> Result<i64> {
        match &self.service {
            Service::Servers(servers) => until("a server to tell the time", || {
                Ok(servers.at(number).time().ok())
            }),
            _ => Ok(self.redis().get(number).context("no server here")?.time()),
        }
    }

    /// A server and its replica.
    ///
    /// # Errors
    /// If there is none.
    pub fn pair(&mut self) -> Result<&mut Pair> {
        if let Service::Pair(pair) = &mut self.service {
            Ok(pair)
        } else {
            bail!("nothing to fail over to")
        }
    }

    /// Kills a server.
    ///
    /// # Errors
    /// If there is none.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        match &mut self.service {
            Service::Redis(testbed) => testbed.redis.kill(),
            Service::Masters(testbed) => testbed.masters[number].kill(),
            Service::Servers(servers) => servers.at_mut(number).kill(),
            Service::Folder(_) | Service::Pair(_) => bail!("nothing to kill"),
        }
        Ok(())
    }

    /// Starts a server again at its place, killing it first if it lives.
    ///
    /// # Errors
    /// If there is none.
    pub fn start_after_kill(&mut self, number: usize) -> Result<()> {
        match &mut self.service {
            Service::Redis(testbed) => testbed.redis.restart(),
            Service::Masters(testbed) => testbed.masters[number].restart(),
            Service::Servers(servers) => servers.at_mut(number).start_after_kill(),
            Service::Folder(_) | Service::Pair(_) => bail!("nothing to start"),
        }
        Ok(())
    }

    /// Stops a server, or lets it go on.
    ///
    /// # Errors
    /// If there is none.
    pub fn pause(&self, number: usize, on: bool) -> Result<()> {
        let redis = |redis: &Redis| if on { redis.pause() } else { redis.resume() };
        let zookeeper = |server: &ZooKeeper| if on { server.pause() } else { server.resume() };
        match &self.service {
            Service::Redis(testbed) => redis(&testbed.redis),
            Service::Masters(testbed) => redis(&testbed.masters[number]),
            Service::Servers(servers) => zookeeper(servers.at(number)),
            Service::Folder(_) | Service::Pair(_) => bail!("nothing to stop"),
        }
        Ok(())
    }

    /// Waits until all serve, and all are believed.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn is_whole(&self) -> Result<()> {
        match &self.service {
            Service::Masters(testbed) => testbed.wait_for_quarantine(),
            Service::Servers(servers) => {
                servers.each().for_each(ZooKeeper::serves);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing is left of takers that are gone, after one more hold of each name.
    ///
    /// # Errors
    /// If anything is left, saying what.
    pub fn check_clean(&self, last: &WorkerConfig) -> Result<()> {
        match &self.service {
            Service::Redis(testbed) if self.backend == Backend::Redis => {
                // What the server had in its hands when it was struck ends with its lease; beside a reader nobody waits for that.
                self.queues_are_empty(last)?;
                return testbed.check_clean(last);
            }
            Service::Folder(testbed) => return testbed.check_clean(&last.names),
            _ => {}
        }
        for name in &last.names {
            self.start(WorkerConfig {
                names: vec![name.clone()],
                ..last.clone()
            })?
            .finish()?;
        }
        if let Service::Servers(servers) = &self.service {
            servers.check_clean()?;
        }
        self.check_keys()?;
        self.queues_are_empty(last)
    }

    /// Where leases end them, claims that were given up in a fault may be seen for a lease more.
    fn queues_are_empty(&self, last: &WorkerConfig) -> Result<()> {
        until_within(self.backend.lease() * 4, "all lines to be empty", || {
            Ok(self.check_empty(&last.names).ok())
        })
    }

    /// Keeps what servers have written, for whoever wants to know why a run has failed.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn keep(&self, to: &Path) -> Result<()> {
        let Service::Servers(servers) = &self.service else {
            return Ok(());
        };
        servers
            .each()
            .try_for_each(|server| keep_folder(server.folder(), to))
    }

    /// Every key ends by itself.
    fn check_keys(&self) -> Result<()> {
        for redis in self.redis() {
            for key in redis.command(&["KEYS", "*"]).texts() {
                ensure!(
                    redis.command(&["PTTL", key]).int() != -1,
                    "{key} stays for ever"
                );
            }
        }
        Ok(())
    }
}

/// Copies the folder of a server into another.
pub(crate) fn keep_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status()?;
    ensure!(copied.success(), "{} cannot be copied", from.display());
    Ok(())
}

fn redis_setup(requires: Requirement, disk: Option<&Disk>) -> Setup {
    let kept = Redis::setup().append_only("always");
    match (requires, disk) {
        (Requirement::SmallDisk, Some(disk)) => on_disk(disk.0.path()),
        (Requirement::PersistentData, _) => kept,
        // Two milliseconds for each key, and questions are answered after every one.
        (Requirement::SlowStart, _) => SLOW_START
            .iter()
            .fold(kept, |setup, (key, value)| setup.config(key, value)),
        (Requirement::ServerClock, _) => Redis::setup().own_clock(),
        (Requirement::DedicatedUser, _) => Redis::setup().acl(RIGHTS),
        (
            Requirement::None
            | Requirement::SmallDisk
            | Requirement::HostileNames
            | Requirement::WorkerClocks,
            _,
        ) => Redis::setup(),
    }
}

const SLOW_START: [(&str, &str); 3] = [
    ("key-load-delay", "2000"),
    ("loading-process-events-interval-bytes", "1024"),
    ("rdbcompression", "no"),
];

/// It appends to a file there. With `always` it would end at the first error.
fn on_disk(folder: &Path) -> Setup {
    let setup = Redis::setup()
        .append_only("everysec")
        .config("dir", &folder.display().to_string());
    setup.config("auto-aof-rewrite-min-size", "8mb")
}

fn zookeeper_setup(requires: Requirement) -> ZooKeeperSetup {
    let setup = ZooKeeper::setup().tick(500);
    if requires == Requirement::ServerClock {
        setup.own_clock()
    } else {
        setup
    }
}

impl Deref for Testbed {
    type Target = FolderTestbed;

    fn deref(&self) -> &FolderTestbed {
        service_testbed(&self.service)
    }
}

fn service_testbed(service: &Service) -> &FolderTestbed {
    match service {
        Service::Folder(testbed) => testbed,
        Service::Redis(testbed) => testbed,
        Service::Pair(pair) => pair,
        Service::Masters(testbed) => testbed,
        Service::Servers(servers) => servers,
    }
}
