//! Five Redis masters of their own for a test.

use std::ops::Deref;

use anyhow::Result;
use lab_servers::{Redis, Setup, Wire};

use crate::{Site, until};

/// Five masters, each behind a wire, takers for their locks, and an onlooker.
#[derive(Debug)]
pub struct RedlockSite {
    // Before the wires, which it uses.
    site: Site,
    /// What is between everybody and the masters.
    pub wires: Vec<Wire>,
    /// The masters, to be treated badly.
    pub masters: Vec<Redis>,
}

impl RedlockSite {
    /// Five masters whose store is opened with these settings. They are believed: what one that was just started may have
    /// forgotten is over.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn start(taker: &str, settings: &str) -> Result<Self> {
        Self::of(taker, &Redis::setup(), settings)
    }

    /// As [`start`](Self::start), of masters with this set-up.
    ///
    /// # Errors
    /// As there.
    pub fn of(taker: &str, setup: &Setup, settings: &str) -> Result<Self> {
        let masters: Vec<Redis> = (0..5).map(|_| setup.clone().start()).collect();
        let wires: Vec<Wire> = masters.iter().map(|master| Wire::to(master.address())).collect();
        let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
        let site = Site::at(taker, &format!("redlock://{}?{settings}", hosts.join(",")))?;
        let site = Self { site, wires, masters };
        site.wait_until_believed()?;
        Ok(site)
    }

    /// A URL with other settings, by other wires where some are given.
    #[must_use]
    pub fn url_with(&self, settings: &str, wires: &[(usize, &Wire)]) -> String {
        let hosts = self.masters.iter().enumerate().map(|(at, master)| {
            let other = wires.iter().find(|(number, _)| *number == at);
            other.map_or_else(|| master.address(), |(_, wire)| wire.address())
        });
        format!("redlock://{}?{settings}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Waits until every master can be asked, and its vote counts.
    ///
    /// # Errors
    /// If that takes longer than [`DEADLINE`](crate::DEADLINE).
    pub fn wait_until_believed(&self) -> Result<()> {
        until("all masters to be believed", || {
            // With too few of them it is an error.
            let line = self.look("nobody's").ok();
            Ok(line.filter(|line| line.views.iter().all(|view| view.trouble.is_none())).map(drop))
        })
    }
}

impl Deref for RedlockSite {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}
