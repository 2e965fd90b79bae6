//! Locks as articles write them, and ours beside them: to be compared, never to be used.
//!
//! A specimen is written as its article has it, with what the article leaves out left out. Each runs in a process of its own
//! (the `specimen` program), is told every step, and may be killed or stopped between any two.

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

pub use client::Client;
pub use process::{Reply, Request, Response, run};

/// A lock, as its users call it.
pub trait Baseline {
    /// The first request of an acquisition and no more; the whole of it where it is one request.
    ///
    /// # Errors
    /// As the service says.
    fn begin(&mut self) -> Result<()>;

    /// Takes the lock, waiting so long at most; its token, 0 where it has none. `None` if somebody else has it.
    ///
    /// # Errors
    /// As the service says.
    fn acquire(&mut self, timeout: Duration) -> Result<Option<u64>>;

    /// Whether it says that it holds, without a question to the service: what its user hears who only does his work. A lock
    /// that never tells its user anything says yes.
    fn holds(&mut self) -> bool;

    /// Gives the lock back as its users do when they are done, whether or not they were granted it.
    ///
    /// # Errors
    /// As the service says.
    fn release(&mut self) -> Result<()>;
}

/// What a specimen is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BaselineConfig {
    /// Which.
    pub contender: Contender,
    /// Where its service is: a URL for ours, addresses with commas between them for the others.
    pub server: String,
    /// The lock.
    pub name: String,
    /// How long it is to be kept without hearing of its holder, in milliseconds.
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

/// The specimens.
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
    /// Redisson's `RLock`.
    Redisson,
    /// The five steps of Redlock.
    Redlock,
    /// The recipe of ZooKeeper's documentation.
    Recipe,
    /// leasehold on files.
    LeaseholdFile,
    /// leasehold on Redis.
    LeaseholdRedis,
    /// leasehold on Redis in the format of the articles.
    LeaseholdPlain,
    /// leasehold on five masters.
    LeaseholdRedlock,
    /// leasehold on ZooKeeper.
    LeaseholdZooKeeper,
}

/// What a specimen needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A folder.
    Folder,
    /// One Redis server.
    Redis,
    /// Five Redis servers that know nothing of each other.
    Masters,
    /// Three ZooKeeper servers.
    Ensemble,
}

impl Contender {
    /// All of them, the articles' first.
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

    /// What people call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Setnx => "SETNX; DEL",
            Self::SetnxExpire => "SETNX, then EXPIRE; DEL",
            Self::SetDel => "SET NX PX; DEL",
            Self::CompareDelete => "SET NX EX; compare, delete",
            Self::ExistsSetex => "EXISTS + SETEX in Lua; compare, delete",
            Self::Redisson => "Redisson's RLock scripts",
            Self::Redlock => "Redlock's five steps",
            Self::Recipe => "ZooKeeper's recipe",
            Self::LeaseholdFile => "leasehold file:",
            Self::LeaseholdRedis => "leasehold redis:",
            Self::LeaseholdPlain => "leasehold redis: plain",
            Self::LeaseholdRedlock => "leasehold redlock:",
            Self::LeaseholdZooKeeper => "leasehold zookeeper:",
        }
    }

    /// Whether it is one of ours.
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

    /// What it needs.
    #[must_use]
    pub fn service(self) -> Service {
        match self {
            Self::LeaseholdFile => Service::Folder,
            Self::Redlock | Self::LeaseholdRedlock => Service::Masters,
            Self::Recipe | Self::LeaseholdZooKeeper => Service::Ensemble,
            _ => Service::Redis,
        }
    }

    /// Whether acquiring takes more than one request, so that one may be killed between them.
    #[must_use]
    pub fn has_steps(self) -> bool {
        matches!(self, Self::SetnxExpire | Self::Redlock | Self::Recipe)
    }

    fn make(self, config: &BaselineConfig) -> Result<Box<dyn Baseline>> {
        Ok(match self {
            Self::Setnx => Box::new(setnx::Setnx::new(config)),
            Self::SetnxExpire => Box::new(setnx_expire::SetnxExpire::new(config)),
            Self::SetDel => Box::new(set_del::SetDel::new(config)),
            Self::CompareDelete => Box::new(compare_delete::CompareDelete::new(config)),
            Self::ExistsSetex => Box::new(exists_setex::ExistsSetex::new(config)),
            Self::Redisson => Box::new(redisson::Redisson::new(config)),
            Self::Redlock => Box::new(redlock::Redlock::new(config)),
            Self::Recipe => Box::new(zookeeper::Recipe::new(config)?),
            _ => Box::new(leasehold::Leasehold::new(config)?),
        })
    }
}
