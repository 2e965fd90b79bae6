//! What specimens are put on: services of their own, which can be treated badly.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lab_servers::{Ensemble, Redis, Wire, ZooKeeper};
use tempfile::TempDir;

use super::{AMPLE_MILLIS, LEASE_MILLIS, LONG_MILLIS};
use crate::baselines::{BaselineConfig, Client, Contender, Reply, Request, Service};
use crate::until;

/// The longest session that the servers agree to.
const SESSION_MAX_MILLIS: u64 = 10_000;

/// The services of one specimen, and a name that no case has used before.
#[derive(Debug)]
pub struct BaselineTestbed {
    program: PathBuf,
    contender: Contender,
    folder: TempDir,
    /// Before each Redis server, so that another can take its place.
    wires: Vec<Wire>,
    servers: Servers,
    names: Cell<u32>,
}

/// What there is to be treated badly.
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
    /// Services for a specimen, and the path of the `specimen` program. They are ready: a lock has been granted there.
    ///
    /// # Errors
    /// If none is.
    pub fn start(program: &Path, contender: Contender) -> Result<Self> {
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

    /// Waits until a lock is granted. New masters are not believed for a while, and new servers elect a leader.
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
            "a lock that was granted is not given back"
        );
        Ok(())
    }

    /// A lock that nobody has used.
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

    /// A lease that does not end, however busy the machine is; masters that are not believed for the longest one cost as long.
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

    /// How many requests the servers have read so far; `None` where there is no server.
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

    /// Where the specimen finds its service, by these wires for those that have one.
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
    /// Starts the specimen with this lease, and waits until it is ready.
    pub(super) fn start(&self, worker: u32, lease_millis: u64) -> Result<Client> {
        Client::start(
            &self.testbed.program,
            &self.config(worker, lease_millis, &self.addresses()),
        )
    }

    /// Starts it without a wire before the servers, as many would cost too many threads, and waits for nothing.
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

    /// As [`start`](Self::start), by other wires.
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
        let (contender, name, resources) =
            (self.testbed.contender, self.name.clone(), self.resources());
        BaselineConfig {
            contender,
            server: self.testbed.server_list(wires, lease_millis),
            name,
            lease_millis,
            worker,
            resources,
        }
    }
}

/// What a server has read from its connections, in as many pieces: requests, where each is sent when the last is answered.
fn reads(server: &Redis) -> u64 {
    let stats = server.info("stats");
    let found = stats.lines().find_map(|line| {
        line.strip_prefix("total_reads_processed:")?
            .trim()
            .parse()
            .ok()
    });
    found
        .context("every server counts what it reads")
        .expect("it is newer than 6")
}
