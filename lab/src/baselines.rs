//! Baselines: locks as articles write them, beside leasehold. For comparison only, never for use.
//!
//! A baseline is written as its article has it. Steps that the article omits are omitted here too.
//! Each baseline runs in a process of its own, the `baseline` program. The process receives every
//! step as a request, so the lab can kill or pause it between any two steps.

mod leasehold;
mod process;
mod recipe;
mod redisson;
mod redlock;
mod zookeeper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use process::{Client, Reply, Request, Response, run};

/// The longest session that the ZooKeeper servers accept.
const SESSION_MAX: Duration = Duration::from_secs(10);

/// A lock with the operations that its users call.
trait Baseline {
    /// Sends only the first of several requests of an acquisition.
    ///
    /// Returns `false`, and sends nothing, if an acquisition is one request.
    fn begin(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Acquires the lock, waiting for at most `timeout`, and returns its token.
    ///
    /// The token is 0 if the lock has no tokens. Returns `None` if the lock stays held by another.
    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>>;

    /// Returns whether the lock reports itself as held, without a request to the service.
    ///
    /// This is all that a user sees while doing the protected work. A lock that never notifies its
    /// user of a loss returns `true`.
    fn holds(&mut self) -> bool {
        true
    }

    /// Releases the lock as its users do after their work, even if it was not granted.
    fn release(&mut self) -> Result<()>;
}

/// The configuration that a baseline is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BaselineConfig {
    /// The [name](Contender::name) of the lock to run.
    pub contender: String,
    /// The address of its service: a URL for leasehold, comma-separated addresses for the others.
    pub server: String,
    /// The lock's name.
    pub name: String,
    /// How long the service keeps the lock without a renewal.
    pub lease: Duration,
    /// The number of the holder.
    pub worker: u32,
    /// The folder of the resources that are protected.
    pub resources: PathBuf,
}

/// A lock that is compared.
#[derive(Debug)]
pub struct Contender {
    /// The name on the command line.
    pub name: &'static str,
    /// The usual name of the lock, as Markdown.
    pub title: &'static str,
    /// The service that the lock needs.
    pub service: Service,
    kind: Kind,
}

/// The service that a lock needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A folder.
    Folder,
    /// One Redis server.
    Redis,
    /// Five independent Redis servers.
    Masters,
    /// One PostgreSQL server.
    Postgres,
    /// Three ZooKeeper servers.
    Ensemble,
}

#[derive(Debug)]
enum Kind {
    /// The requests of an acquisition and of a release.
    Recipe(&'static [&'static str], &'static str),
    /// The `RLock` of Redisson itself, in a Java program.
    Redisson,
    /// The five steps of Redlock.
    Redlock,
    /// The recipe of ZooKeeper's documentation.
    ZooKeeper,
    /// leasehold, with the URL of its store. `SERVERS` and `SESSION` stand for values of a case.
    Leasehold(&'static str),
}

/// All contenders. The baselines come first.
pub static CONTENDERS: [Contender; 14] = [
    recipe("setnx", "SETNX; DEL", &["SETNX KEY 1"], "DEL KEY"),
    recipe(
        "setnx-expire",
        "SETNX, then EXPIRE; DEL",
        &["SETNX KEY 1", "EXPIRE KEY SECONDS"],
        "DEL KEY",
    ),
    recipe(
        "set-nx-px",
        "SET NX PX; DEL",
        &["SET KEY 1 NX PX MILLIS"],
        "DEL KEY",
    ),
    recipe(
        "set-nx-ex",
        "SET NX EX; compare, delete",
        &["SET KEY VALUE NX EX SECONDS"],
        "EVAL COMPARE_AND_DELETE 1 KEY VALUE",
    ),
    recipe(
        "exists-setex",
        "EXISTS + SETEX in Lua; compare, delete",
        &["EVAL SET_IF_FREE 1 KEY VALUE SECONDS"],
        "EVAL COMPARE_AND_DELETE 1 KEY VALUE",
    ),
    contender(
        "redisson",
        "Redisson's RLock",
        Service::Redis,
        Kind::Redisson,
    ),
    contender(
        "redlock-steps",
        "Redlock's five steps",
        Service::Masters,
        Kind::Redlock,
    ),
    contender(
        "zookeeper-recipe",
        "ZooKeeper's recipe",
        Service::Ensemble,
        Kind::ZooKeeper,
    ),
    contender(
        "file",
        "**leasehold file:**",
        Service::Folder,
        Kind::Leasehold("file:SERVERS"),
    ),
    contender(
        "redis",
        "**leasehold redis:**",
        Service::Redis,
        Kind::Leasehold("redis://SERVERS?crash-grace=1s"),
    ),
    contender(
        "redis-plain",
        "**leasehold redis: plain**",
        Service::Redis,
        Kind::Leasehold("redis://SERVERS?dialect=plain&tokens=on"),
    ),
    contender(
        "redlock",
        "**leasehold redlock:**",
        Service::Masters,
        Kind::Leasehold("redlock://SERVERS?longest-lease=6s"),
    ),
    contender(
        "postgres",
        "**leasehold postgres:**",
        Service::Postgres,
        Kind::Leasehold("postgres://postgres@SERVERS/postgres?crash-grace=1s"),
    ),
    contender(
        "zookeeper",
        "**leasehold zookeeper:**",
        Service::Ensemble,
        Kind::Leasehold("zookeeper://SERVERS?session=SESSIONms"),
    ),
];

const fn contender(
    name: &'static str,
    title: &'static str,
    service: Service,
    kind: Kind,
) -> Contender {
    Contender {
        name,
        title,
        service,
        kind,
    }
}

const fn recipe(
    name: &'static str,
    title: &'static str,
    acquire: &'static [&'static str],
    release: &'static str,
) -> Contender {
    contender(name, title, Service::Redis, Kind::Recipe(acquire, release))
}

/// The contender with a name.
///
/// # Errors
/// If there is none.
pub fn contender_named(name: &str) -> Result<&'static Contender> {
    let found = CONTENDERS.iter().find(|contender| contender.name == name);
    found.with_context(|| {
        let names: Vec<&str> = CONTENDERS.iter().map(|contender| contender.name).collect();
        format!(
            "baseline {name:?} does not exist; the baselines are {}",
            names.join(", ")
        )
    })
}

impl Contender {
    pub(crate) fn is_leasehold(&self) -> bool {
        matches!(self.kind, Kind::Leasehold(_))
    }

    /// Returns the address of the service for this contender.
    pub(crate) fn server(&self, servers: &str, lease: Duration) -> String {
        let Kind::Leasehold(url) = self.kind else {
            return servers.to_owned();
        };
        let session = lease.min(SESSION_MAX).as_millis();
        url.replace("SERVERS", servers)
            .replace("SESSION", &session.to_string())
    }

    fn make(&self, config: &BaselineConfig) -> Result<Box<dyn Baseline>> {
        Ok(match self.kind {
            Kind::Recipe(acquire, release) => {
                Box::new(recipe::Recipe::new(config, acquire, release))
            }
            Kind::Redisson => Box::new(redisson::Redisson::new(config)?),
            Kind::Redlock => Box::new(redlock::Redlock::new(config)),
            Kind::ZooKeeper => Box::new(zookeeper::ZooKeeperRecipe::new(config)?),
            Kind::Leasehold(_) => Box::new(leasehold::Leasehold::new(config)?),
        })
    }
}
