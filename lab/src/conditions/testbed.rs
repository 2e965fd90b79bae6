//! The testbed of one contender: services of its own, which the cases kill and disconnect.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_servers::{Ensemble, Postgres, Redis};
use tempfile::TempDir;

use super::{AMPLE, LEASE, LONG};
use crate::baselines::{BaselineConfig, Client, Contender, Reply, Request, Service};
use crate::until;

/// The services of one contender, and what its clients need. Each case gets a lock name that was not
/// used before.
#[derive(Debug)]
pub struct BaselineTestbed {
    program: PathBuf,
    pub(super) contender: &'static Contender,
    folder: TempDir,
    names: Cell<u32>,
    pub(super) servers: Servers,
}

/// The servers that a case may kill or replace.
#[derive(Debug)]
pub(super) enum Servers {
    Folder(PathBuf),
    /// One Redis server, or five.
    Redis(Vec<Redis>),
    Postgres(Box<Postgres>),
    Ensemble(Box<Ensemble>),
}

/// One lock, and the resources it protects.
#[derive(Debug)]
pub(super) struct Fixture {
    program: PathBuf,
    contender: &'static Contender,
    name: String,
    servers: String,
    pub(super) resources: PathBuf,
}

impl BaselineTestbed {
    /// Starts the services of a contender, and waits until they grant a lock.
    ///
    /// `program` is the path of the `baseline` program.
    ///
    /// # Errors
    /// If no lock is granted.
    pub fn start(program: &Path, contender: &'static Contender) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("four-conditions-")
            .tempdir()?;
        let servers = match contender.service {
            Service::Folder => Servers::Folder(folder.path().join("store")),
            Service::Redis => Servers::Redis(vec![Redis::start()]),
            Service::Masters => Servers::Redis((0..5).map(|_| Redis::start()).collect()),
            Service::Postgres => {
                Servers::Postgres(Box::new(Postgres::configured(&["log_statement=all"])))
            }
            Service::Ensemble => Servers::Ensemble(Box::new(Ensemble::start())),
        };

        let testbed = Self {
            program: program.to_owned(),
            contender,
            folder,
            names: Cell::new(0),
            servers,
        };
        testbed.be_ready()?;
        Ok(testbed)
    }

    /// Waits until a lock is granted. New masters are in quarantine, and new servers elect a
    /// leader.
    pub(super) fn be_ready(&self) -> Result<()> {
        if let Servers::Ensemble(ensemble) = &self.servers {
            let _ = ensemble.leader();
        }

        let mut probe = self.fixture().start(0, LEASE)?;
        until("a lock to be granted", || {
            let response = probe.request(Request::Acquire(1_000))?;
            Ok((response.reply == Reply::Granted).then_some(()))
        })?;
        let released = probe.request(Request::Release)?;
        ensure!(
            released.reply == Reply::Done,
            "a granted lock cannot be released"
        );
        Ok(())
    }

    /// Returns a lock with a new name.
    pub(super) fn fixture(&self) -> Fixture {
        self.names.set(self.names.get() + 1);
        let name = format!("lock-{}", self.names.get());
        Fixture {
            program: self.program.clone(),
            contender: self.contender,
            servers: self.servers.addresses(),
            resources: self.folder.path().join(&name),
            name,
        }
    }

    /// Returns a lease that does not end during a case, even on a busy machine.
    ///
    /// Redlock masters stay in quarantine for the longest lease, so theirs is shorter.
    pub(super) fn ample(&self) -> Duration {
        if self.contender.is_leasehold() && self.contender.service == Service::Masters {
            LONG
        } else {
            AMPLE
        }
    }
}

impl Servers {
    fn addresses(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::Redis(servers) => addresses(servers),
            Self::Postgres(server) => server.address(),
            Self::Ensemble(ensemble) => ensemble.url().replace("zookeeper://", ""),
        }
    }

    /// Counts the requests that the servers have read. Returns `None` without a server.
    pub(super) fn requests(&self) -> Option<u64> {
        match self {
            Self::Folder(_) => None,
            Self::Redis(servers) => Some(servers.iter().map(reads).sum()),
            Self::Postgres(server) => {
                let log = server.log();
                let kinds = ["LOG:  execute ", "LOG:  statement: "];
                let count: usize = kinds.iter().map(|kind| log.matches(kind).count()).sum();
                Some(count as u64)
            }
            Self::Ensemble(ensemble) => {
                let servers = (0..ensemble.count()).map(|index| ensemble.server(index));
                Some(
                    servers
                        .map(|server| server.count("zk_packets_received"))
                        .sum(),
                )
            }
        }
    }
}

impl Fixture {
    /// Starts a client with this lease, and waits until it is ready.
    pub(super) fn start(&self, worker: u32, lease: Duration) -> Result<Client> {
        self.start_at(worker, lease, &self.servers)
    }

    /// Starts a client like [`start`](Self::start), on other servers.
    pub(super) fn start_at(&self, worker: u32, lease: Duration, servers: &str) -> Result<Client> {
        let config = BaselineConfig {
            contender: self.contender.name.to_owned(),
            server: self.contender.server(servers, lease),
            name: self.name.clone(),
            lease,
            worker,
            resources: self.resources.clone(),
        };
        Client::start(&self.program, &config)
    }
}

/// Returns the addresses of some servers, separated by commas.
pub(super) fn addresses(servers: &[Redis]) -> String {
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    addresses.join(",")
}

/// Returns how many reads a server has done on its connections.
///
/// This is the number of requests, because each client sends a request after the last reply.
fn reads(server: &Redis) -> u64 {
    let stats = server.info("stats");
    let reads = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads
        .and_then(|reads| reads.trim().parse().ok())
        .expect("servers since version 6.2 count their reads")
}
