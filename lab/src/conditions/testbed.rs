//! The testbed of one contender: services of its own, which the cases kill and disconnect.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lab_servers::{Ensemble, Redis, Wire, ZooKeeper};
use tempfile::TempDir;

use super::{AMPLE_MILLIS, LEASE_MILLIS, LONG_MILLIS};
use crate::baselines::{BaselineConfig, Client, Contender, Reply, Request, Service};
use crate::until;

/// The longest session that the ZooKeeper servers accept.
const SESSION_MAX_MILLIS: u64 = 10_000;

/// The services of one contender. Each case gets a lock name that was not used before.
#[derive(Debug)]
pub struct BaselineTestbed {
    program: PathBuf,
    contender: Contender,
    folder: TempDir,
    /// The wire before each Redis server, which can lead to another server later.
    wires: Vec<Wire>,
    servers: Servers,
    names: Cell<u32>,
}

/// The servers that a case may kill or replace.
#[derive(Debug)]
pub(super) enum Servers {
    None,
    /// One Redis server, or five.
    Redis(Vec<Redis>),
    Ensemble(Box<Ensemble>),
}

/// One lock, and the resources it protects.
#[derive(Debug)]
pub(super) struct Fixture<'a> {
    testbed: &'a BaselineTestbed,
    name: String,
}

impl BaselineTestbed {
    /// Starts the services of a contender, and waits until they grant a lock.
    ///
    /// `program` is the path of the `baseline` program.
    ///
    /// # Errors
    /// If no lock is granted.
    pub fn start(program: &Path, contender: Contender) -> Result<Self> {
        contender.prepare()?;
        let servers = match contender.service() {
            Service::Folder => Servers::None,
            Service::Redis => Servers::Redis(vec![Redis::start()]),
            Service::Masters => Servers::Redis((0..5).map(|_| Redis::start()).collect()),
            Service::Ensemble => Servers::Ensemble(Box::new(Ensemble::start())),
        };
        let wires = servers
            .redis()
            .iter()
            .map(|server| Wire::to(server.address()))
            .collect();

        let folder = tempfile::Builder::new()
            .prefix("four-conditions-")
            .tempdir()?;

        let testbed = Self {
            program: program.to_owned(),
            contender,
            folder,
            wires,
            servers,
            names: Cell::new(0),
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

        let fixture = self.fixture();
        let mut probe = fixture.start(0, LEASE_MILLIS)?;
        until("a lock to be granted", || {
            let response = probe.request(Request::Acquire(1_000))?;
            Ok(matches!(response.reply, Reply::Granted(_)).then_some(()))
        })?;
        ensure!(
            probe.request(Request::Release)?.reply == Reply::Done,
            "a granted lock cannot be released"
        );
        Ok(())
    }

    /// Returns a lock with a new name.
    pub(super) fn fixture(&self) -> Fixture<'_> {
        self.names.set(self.names.get() + 1);
        Fixture {
            testbed: self,
            name: format!("lock-{}", self.names.get()),
        }
    }

    pub(super) fn contender(&self) -> Contender {
        self.contender
    }

    /// Returns a lease that does not end during a case, even on a busy machine.
    ///
    /// Redlock masters stay in quarantine for the longest lease. So theirs is shorter.
    pub(super) fn ample_millis(&self) -> u64 {
        if self.contender == Contender::LeaseholdRedlock {
            LONG_MILLIS
        } else {
            AMPLE_MILLIS
        }
    }

    pub(super) fn servers_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    pub(super) fn wires(&self) -> &[Wire] {
        &self.wires
    }

    /// Counts the requests that the servers have read. Returns `None` without a server.
    pub(super) fn requests(&self) -> Option<u64> {
        match &self.servers {
            Servers::None => None,
            Servers::Redis(servers) => Some(servers.iter().map(reads).sum()),
            Servers::Ensemble(ensemble) => {
                let servers = (0..ensemble.count()).map(|index| ensemble.server(index));
                Some(
                    servers
                        .map(|server: &ZooKeeper| server.count("zk_packets_received"))
                        .sum(),
                )
            }
        }
    }

    /// Returns the address of the service for the contender. Redis servers are behind `wires`.
    fn server_list(&self, wires: &[String], lease_millis: u64) -> String {
        let contender = self.contender;

        match (&self.servers, contender) {
            (Servers::None, _) => format!("file:{}/store", self.folder.path().display()),
            (Servers::Ensemble(ensemble), Contender::Recipe) => {
                ensemble.url().replace("zookeeper://", "")
            }
            (Servers::Ensemble(ensemble), _) => {
                format!(
                    "{}?session={}ms",
                    ensemble.url(),
                    lease_millis.min(SESSION_MAX_MILLIS)
                )
            }
            (Servers::Redis(_), Contender::LeaseholdRedis) => {
                format!("redis://{}?crash-grace=1s", wires[0])
            }
            (Servers::Redis(_), Contender::LeaseholdPlain) => {
                format!("redis://{}?dialect=plain&tokens=on", wires[0])
            }
            (Servers::Redis(_), Contender::LeaseholdRedlock) => {
                format!(
                    "redlock://{}?longest-lease={LONG_MILLIS}ms",
                    wires.join(",")
                )
            }
            (Servers::Redis(_), _) => wires.join(","),
        }
    }
}

impl Servers {
    pub(super) fn redis(&self) -> &[Redis] {
        if let Self::Redis(servers) = self {
            servers
        } else {
            &[]
        }
    }
}

impl Fixture<'_> {
    /// Starts a client with this lease, and waits until it is ready.
    pub(super) fn start(&self, worker: u32, lease_millis: u64) -> Result<Client> {
        Client::start(
            &self.testbed.program,
            &self.config(worker, lease_millis, &self.addresses()),
        )
    }

    /// Starts a client that connects to the servers directly, without waiting until it is ready.
    ///
    /// Wires for many clients would need too many threads.
    pub(super) fn launch_direct(&self, worker: u32, lease_millis: u64) -> Result<Client> {
        let direct: Vec<String> = self
            .testbed
            .servers
            .redis()
            .iter()
            .map(Redis::address)
            .collect();
        Client::launch(
            &self.testbed.program,
            &self.config(worker, lease_millis, &direct),
        )
    }

    /// Starts a client like [`start`](Self::start), on other wires.
    pub(super) fn start_by(
        &self,
        worker: u32,
        lease_millis: u64,
        wires: &[String],
    ) -> Result<Client> {
        Client::start(
            &self.testbed.program,
            &self.config(worker, lease_millis, wires),
        )
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.testbed.wires.iter().map(Wire::address).collect()
    }

    pub(super) fn resources(&self) -> PathBuf {
        self.testbed.folder.path().join(&self.name)
    }

    fn config(&self, worker: u32, lease_millis: u64, wires: &[String]) -> BaselineConfig {
        BaselineConfig {
            contender: self.testbed.contender,
            server: self.testbed.server_list(wires, lease_millis),
            name: self.name.clone(),
            lease_millis,
            worker,
            resources: self.resources(),
        }
    }
}

/// Returns how many reads a server has done on its connections.
///
/// This is the number of requests, because each client sends a request after the last reply.
fn reads(server: &Redis) -> u64 {
    let stats = server.info("stats");
    let found = stats.lines().find_map(|line| {
        line.strip_prefix("total_reads_processed:")?
            .trim()
            .parse()
            .ok()
    });
    found
        .context("the server does not report total_reads_processed")
        .expect("servers since version 6.2 report it")
}
