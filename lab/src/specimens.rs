//! Locks as articles write them, and ours beside them: to be compared, never to be used.
//!
//! A specimen is written as its article has it, with what the article leaves out left out. Each runs in a process of its own
//! (the `specimen` program), is told every step, and may be killed or stopped between any two.

mod bare;
mod compare_delete;
mod exists_setex;
mod ours;
mod process;
mod redisson;
mod redlock;
mod running;
mod set_del;
mod setnx;
mod setnx_expire;
mod zookeeper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use process::{Answer, Order, Said, run};
pub use running::Running;

/// A lock, as its users call it.
pub trait Specimen {
    /// The first request of an acquisition and no more; the whole of it where it is one request.
    ///
    /// # Errors
    /// As the service says.
    fn begin(&mut self) -> Result<()>;

    /// Takes the lock, waiting so long at most; its token, 0 where it has none. `None` if somebody else has it.
    ///
    /// # Errors
    /// As the service says.
    fn acquire(&mut self, patience: Duration) -> Result<Option<u64>>;

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
pub struct Terms {
    /// Which.
    pub kind: Kind,
    /// Where its service is: a URL for ours, addresses with commas between them for the others.
    pub place: String,
    /// The lock.
    pub name: String,
    /// How long it is to be kept without hearing of its holder, in milliseconds.
    pub lease_millis: u64,
    /// The number of the holder.
    pub hand: u32,
    /// The folder of the resources that are protected.
    pub victims: PathBuf,
}

impl Terms {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_millis)
    }
}

/// The specimens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
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
    OursFile,
    /// leasehold on Redis.
    OursRedis,
    /// leasehold on Redis in the format of the articles.
    OursPlain,
    /// leasehold on five masters.
    OursRedlock,
    /// leasehold on ZooKeeper.
    OursZooKeeper,
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

impl Kind {
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
        Self::OursFile,
        Self::OursRedis,
        Self::OursPlain,
        Self::OursRedlock,
        Self::OursZooKeeper,
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
            Self::OursFile => "leasehold file:",
            Self::OursRedis => "leasehold redis:",
            Self::OursPlain => "leasehold redis: plain",
            Self::OursRedlock => "leasehold redlock:",
            Self::OursZooKeeper => "leasehold zookeeper:",
        }
    }

    /// Whether it is one of ours.
    #[must_use]
    pub fn is_ours(self) -> bool {
        matches!(self, Self::OursFile | Self::OursRedis | Self::OursPlain | Self::OursRedlock | Self::OursZooKeeper)
    }

    /// What it needs.
    #[must_use]
    pub fn service(self) -> Service {
        match self {
            Self::OursFile => Service::Folder,
            Self::Redlock | Self::OursRedlock => Service::Masters,
            Self::Recipe | Self::OursZooKeeper => Service::Ensemble,
            _ => Service::Redis,
        }
    }

    /// Whether acquiring takes more than one request, so that one may be killed between them.
    #[must_use]
    pub fn has_steps(self) -> bool {
        matches!(self, Self::SetnxExpire | Self::Redlock | Self::Recipe)
    }

    fn make(self, terms: &Terms) -> Result<Box<dyn Specimen>> {
        Ok(match self {
            Self::Setnx => Box::new(setnx::Setnx::new(terms)),
            Self::SetnxExpire => Box::new(setnx_expire::SetnxExpire::new(terms)),
            Self::SetDel => Box::new(set_del::SetDel::new(terms)),
            Self::CompareDelete => Box::new(compare_delete::CompareDelete::new(terms)),
            Self::ExistsSetex => Box::new(exists_setex::ExistsSetex::new(terms)),
            Self::Redisson => Box::new(redisson::Redisson::new(terms)),
            Self::Redlock => Box::new(redlock::Redlock::new(terms)),
            Self::Recipe => Box::new(zookeeper::Recipe::new(terms)?),
            _ => Box::new(ours::Ours::new(terms)?),
        })
    }
}
