//! One ZooKeeper server, or three.

use std::ops::Deref;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lab_servers::{Ensemble, ZooKeeper, ZooKeeperRelease};

use crate::Site;

/// ZooKeeper servers, takers for their locks, and an onlooker.
#[derive(Debug)]
pub struct Servers {
    // Before the servers, which it uses.
    site: Site,
    who: Who,
}

/// On a busy machine a server that serves may take longer to open a session than a client waits.
fn open(taker: &str, url: &str) -> Result<Site> {
    crate::until("a session", || Ok(Site::at(taker, url).ok()))
}

/// Two sessions and what a busy machine adds: by then no node of the dead is left.
const ORPHANS_MAX: Duration = Duration::from_secs(2 * 2 + 10);

#[derive(Debug)]
enum Who {
    One(Box<ZooKeeper>),
    Three(Ensemble),
}

impl Servers {
    pub(super) fn one(taker: &str, settings: &str) -> Result<Self> {
        let server = ZooKeeper::setup().tick(500).start();
        let site = open(taker, &format!("{}{settings}", server.url()))?;
        Ok(Self { site, who: Who::One(server.into()) })
    }

    pub(super) fn three(taker: &str, settings: &str) -> Result<Self> {
        let ensemble = Ensemble::of(&ZooKeeper::setup().tick(500).release(ZooKeeperRelease::Newest));
        let site = open(taker, &format!("{}{settings}", ensemble.url()))?;
        Ok(Self { site, who: Who::Three(ensemble) })
    }

    /// The three together.
    ///
    /// # Errors
    /// If there is only one.
    pub fn ensemble(&self) -> Result<&Ensemble> {
        if let Who::Three(ensemble) = &self.who { Ok(ensemble) } else { anyhow::bail!("it is alone") }
    }

    /// One of them.
    #[must_use]
    pub fn at(&self, number: usize) -> &ZooKeeper {
        match &self.who {
            Who::One(server) => server,
            Who::Three(ensemble) => ensemble.server(number),
        }
    }

    /// One of them, to be killed or started.
    pub fn at_mut(&mut self, number: usize) -> &mut ZooKeeper {
        match &mut self.who {
            Who::One(server) => server,
            Who::Three(ensemble) => ensemble.server_mut(number),
        }
    }

    /// All of them.
    pub fn each(&self) -> impl Iterator<Item = &ZooKeeper> {
        let count = if let Who::Three(ensemble) = &self.who { ensemble.count() } else { 1 };
        (0..count).map(|number| self.at(number))
    }

    /// The one that leads.
    #[must_use]
    pub fn leader(&self) -> usize {
        match &self.who {
            Who::One(_) => 0,
            Who::Three(ensemble) => ensemble.leader(),
        }
    }

    /// No node of the dead is left soon.
    pub(super) fn check_clean(&self) -> Result<()> {
        let begun = Instant::now();
        let server = self.at(self.leader());
        crate::until("all nodes of those who have gone to be gone", || {
            ensure!(begun.elapsed() < ORPHANS_MAX, "orphans for {:?}", begun.elapsed());
            Ok((server.count("zk_ephemerals_count") == 0).then_some(()))
        })
    }
}

impl Deref for Servers {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}
