//! Baselines: locks as articles write them, beside leasehold. For comparison only, never for use.
//!
//! A baseline is written as its article has it. Steps that the article omits are omitted here too.
//! Each baseline runs in a process of its own, the `baseline` program. The process receives every
//! step as a request, so the lab can kill or pause it between any two steps.

mod bare;
mod client;
mod compare_delete;
mod exists_setex;
mod leasehold;
mod process;
mod redisson;
mod redlock;
mod set_del;
mod setnx;
mod setnx_expire;
mod zookeeper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::redisson_class_path;

pub use client::Client;
pub use process::{Reply, Request, Response, run};

/// A lock with the operations that its users call.
pub trait Baseline {
    /// Sends only the first request of an acquisition. If it has one request, this acquires.
    ///
    /// # Errors
    /// If the service returns an error or does not reply.
    fn begin(&mut self) -> Result<()>;

    /// Acquires the lock, waiting for at most `timeout`, and returns its token.
    ///
    /// The token is 0 if the lock has no tokens. Returns `None` if the lock stays held by another.
    ///
    /// # Errors
    /// If the service returns an error or does not reply.
    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>>;

    /// Returns whether the lock reports itself as held, without a request to the service.
    ///
    /// This is all that a user sees while doing the protected work. A lock that never notifies its
    /// user of a loss returns `true`.
    fn holds(&mut self) -> bool;

    /// Releases the lock as its users do after their work, even if it was not granted.
    ///
    /// # Errors
    /// If the service returns an error or does not reply.
    fn release(&mut self) -> Result<()>;
}

/// The configuration that a baseline is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BaselineConfig {
    /// The lock to run.
    pub contender: Contender,
    /// The address of its service: a URL for leasehold, comma-separated addresses for the others.
    pub server: String,
    /// The lock's name.
    pub name: String,
    /// The lease in milliseconds: how long the service keeps the lock without a renewal.
    pub lease_millis: u64,
    /// The number of the holder.
    pub worker: u32,
    /// The folder of the resources that are protected.
    pub resources: PathBuf,
}

impl BaselineConfig {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_millis)
    }
}

/// The locks that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// `SETNX`, and `DEL`.
    Setnx,
    /// `SETNX`, then `EXPIRE`, and `DEL`.
    SetnxExpire,
    /// `SET NX PX`, and `DEL`.
    SetDel,
    /// `SET NX EX`, and a script that compares and deletes.
    CompareDelete,
    /// A script with `EXISTS` and `SETEX`, and one that compares and deletes.
    ExistsSetex,
    /// The `RLock` of Redisson itself, in a Java program.
    Redisson,
    /// The five steps of Redlock.
    Redlock,
    /// The recipe of ZooKeeper's documentation.
    Recipe,
    /// leasehold on files.
    LeaseholdFile,
    /// leasehold on Redis.
    LeaseholdRedis,
    /// leasehold on Redis, in the plain format of the articles.
    LeaseholdPlain,
    /// leasehold on five independent Redis masters.
    LeaseholdRedlock,
    /// leasehold on ZooKeeper.
    LeaseholdZooKeeper,
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
    /// Three ZooKeeper servers.
    Ensemble,
}

impl Contender {
    /// All contenders. The baselines come first.
    pub const ALL: [Self; 13] = [
        Self::Setnx,
        Self::SetnxExpire,
        Self::SetDel,
        Self::CompareDelete,
        Self::ExistsSetex,
        Self::Redisson,
        Self::Redlock,
        Self::Recipe,
        Self::LeaseholdFile,
        Self::LeaseholdRedis,
        Self::LeaseholdPlain,
        Self::LeaseholdRedlock,
        Self::LeaseholdZooKeeper,
    ];

    /// Returns the usual name of the lock.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Setnx => "SETNX; DEL",
            Self::SetnxExpire => "SETNX, then EXPIRE; DEL",
            Self::SetDel => "SET NX PX; DEL",
            Self::CompareDelete => "SET NX EX; compare, delete",
            Self::ExistsSetex => "EXISTS + SETEX in Lua; compare, delete",
            Self::Redisson => "Redisson's RLock",
            Self::Redlock => "Redlock's five steps",
            Self::Recipe => "ZooKeeper's recipe",
            Self::LeaseholdFile => "leasehold file:",
            Self::LeaseholdRedis => "leasehold redis:",
            Self::LeaseholdPlain => "leasehold redis: plain",
            Self::LeaseholdRedlock => "leasehold redlock:",
            Self::LeaseholdZooKeeper => "leasehold zookeeper:",
        }
    }

    /// Returns whether the lock is one of leasehold's.
    #[must_use]
    pub fn is_leasehold(self) -> bool {
        matches!(
            self,
            Self::LeaseholdFile
                | Self::LeaseholdRedis
                | Self::LeaseholdPlain
                | Self::LeaseholdRedlock
                | Self::LeaseholdZooKeeper
        )
    }

    /// Returns the service that the lock needs.
    #[must_use]
    pub fn service(self) -> Service {
        match self {
            Self::LeaseholdFile => Service::Folder,
            Self::Redlock | Self::LeaseholdRedlock => Service::Masters,
            Self::Recipe | Self::LeaseholdZooKeeper => Service::Ensemble,
            _ => Service::Redis,
        }
    }

    /// Returns whether an acquisition takes several requests, so that a kill can come between them.
    #[must_use]
    pub fn has_steps(self) -> bool {
        matches!(self, Self::SetnxExpire | Self::Redlock | Self::Recipe)
    }

    /// Prepares what the processes of this lock need, before the first of them starts.
    pub(crate) fn prepare(self) -> Result<()> {
        match self {
            Self::Redisson => redisson_class_path().map(drop),
            _ => Ok(()),
        }
    }

    fn make(self, config: &BaselineConfig) -> Result<Box<dyn Baseline>> {
        Ok(match self {
            Self::Setnx => Box::new(setnx::Setnx::new(config)),
            Self::SetnxExpire => Box::new(setnx_expire::SetnxExpire::new(config)),
            Self::SetDel => Box::new(set_del::SetDel::new(config)),
            Self::CompareDelete => Box::new(compare_delete::CompareDelete::new(config)),
            Self::ExistsSetex => Box::new(exists_setex::ExistsSetex::new(config)),
            Self::Redisson => Box::new(redisson::Redisson::new(config)?),
            Self::Redlock => Box::new(redlock::Redlock::new(config)),
            Self::Recipe => Box::new(zookeeper::Recipe::new(config)?),
            _ => Box::new(leasehold::Leasehold::new(config)?),
        })
    }
}
