//! One ZooKeeper server, or three.

use std::ops::Deref;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease, ZooKeeperSetup};

use crate::FolderTestbed;

/// ZooKeeper servers, takers for their locks, and an onlooker.
#[derive(Debug)]
pub struct Servers {
    // Before the servers, which it uses.
    testbed: FolderTestbed,
    who: Topology,
}

/// On a busy machine a server that serves may take longer to open a session than a client waits.
fn open(worker: &str, url: &str) -> Result<FolderTestbed> {
    crate::until("a session", || Ok(FolderTestbed::at(worker, url).ok()))
}

/// Two sessions and what a busy machine adds: by then no node of the dead is left.
const ORPHANS_MAX: Duration = Duration::from_secs(2 * 2 + 10);

#[derive(Debug)]
enum Topology {
    Single(Box<ZooKeeper>),
    Ensemble(Ensemble),
}

impl Servers {
    pub(super) fn one(worker: &str, setup: &ZooKeeperSetup, settings: &str) -> Result<Self> {
        let server = setup.clone().start();
        let testbed = open(worker, &format!("{}{settings}", server.url()))?;
        Ok(Self {
            testbed,
            who: Topology::Single(server.into()),
        })
    }

    pub(super) fn three(worker: &str, setup: &ZooKeeperSetup, settings: &str) -> Result<Self> {
        let ensemble = Ensemble::of(&setup.clone().release(ZooKeeperRelease::Newest));
        let testbed = open(worker, &format!("{}{settings}", ensemble.url()))?;
        Ok(Self {
            testbed,
            who: Topology::Ensemble(ensemble),
        })
    }

    /// The three together.
    ///
    /// # Errors
    /// If there is only one.
    pub fn ensemble(&self) -> Result<&Ensemble> {
        if let Topology::Ensemble(ensemble) = &self.who {
            Ok(ensemble)
        } else {
            anyhow::bail!("it is alone")
        }
    }

    /// One of them.
    #[must_use]
    pub fn at(&self, number: usize) -> &ZooKeeper {
        match &self.who {
            Topology::Single(server) => server,
            Topology::Ensemble(ensemble) => ensemble.server(number),
        }
    }

    /// One of them, to be killed or started.
    pub fn at_mut(&mut self, number: usize) -> &mut ZooKeeper {
        match &mut self.who {
            Topology::Single(server) => server,
            Topology::Ensemble(ensemble) => ensemble.server_mut(number),
        }
    }

    /// All of them.
    pub fn each(&self) -> impl Iterator<Item = &ZooKeeper> {
        let count = if let Topology::Ensemble(ensemble) = &self.who {
            ensemble.count()
        } else {
            1
        };
        (0..count).map(|number| self.at(number))
    }

    /// The one that leads.
    #[must_use]
    pub fn leader(&self) -> usize {
        match &self.who {
            Topology::Single(_) => 0,
            Topology::Ensemble(ensemble) => ensemble.leader(),
        }
    }

    /// No node of the dead is left soon.
    pub(super) fn check_clean(&self) -> Result<()> {
        let begun = Instant::now();
        let server = self.at(self.leader());
        crate::until("all nodes of those who have gone to be gone", || {
            ensure!(
                begun.elapsed() < ORPHANS_MAX,
                "orphans for {:?}",
                begun.elapsed()
            );
            Ok((server.count("zk_ephemerals_count") == 0).then_some(()))
        })
    }
}

impl Deref for Servers {
    type Target = FolderTestbed;

    fn deref(&self) -> &FolderTestbed {
        &self.testbed
    }
}
