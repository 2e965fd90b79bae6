//! Five Redis masters of their own for a test.

use std::ops::Deref;

use anyhow::Result;
use lab_servers::{Redis, Setup, Wire};

use crate::{FolderTestbed, until};

/// Five masters, each behind a wire, takers for their locks, and an onlooker.
#[derive(Debug)]
pub struct RedlockTestbed {
    // Before the wires, which it uses.
    testbed: FolderTestbed,
    /// What is between everybody and the masters.
    pub wires: Vec<Wire>,
    /// The masters, to be treated badly.
    pub masters: Vec<Redis>,
}

impl RedlockTestbed {
    /// Five masters whose store is opened with these settings. They are believed: what one that was just started may have
    /// forgotten is over.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn start(worker: &str, settings: &str) -> Result<Self> {
        Self::of(worker, &Redis::setup(), settings)
    }

    /// As [`start`](Self::start), of masters with this set-up.
    ///
    /// # Errors
    /// As there.
    pub fn of(worker: &str, setup: &Setup, settings: &str) -> Result<Self> {
        let masters: Vec<Redis> = (0..5).map(|_| setup.clone().start()).collect();
        let wires: Vec<Wire> = masters
            .iter()
            .map(|master| Wire::to(master.address()))
            .collect();
        let hosts: Vec<String> = wires.iter().map(Wire::address).collect();
        let testbed =
            FolderTestbed::at(worker, &format!("redlock://{}?{settings}", hosts.join(",")))?;
        let testbed = Self {
            testbed,
            wires,
            masters,
        };
        testbed.wait_for_quarantine()?;
        Ok(testbed)
    }

    /// A URL with other settings, by other wires where some are given.
    #[must_use]
    pub fn url_with(&self, settings: &str, wires: &[(usize, &Wire)]) -> String {
        let hosts = self.masters.iter().enumerate().map(|(at, master)| {
            let other = wires.iter().find(|(number, _)| *number == at);
            other.map_or_else(|| master.address(), |(_, wire)| wire.address())
        });
        format!(
            "redlock://{}?{settings}",
            hosts.collect::<Vec<_>>().join(",")
        )
    }

    /// Waits until every master can be asked, and its vote counts.
    ///
    /// # Errors
    /// If that takes longer than [`DEADLINE`](crate::DEADLINE).
    pub fn wait_for_quarantine(&self) -> Result<()> {
        until("all masters to be believed", || {
            // With too few of them it is an error.
            let lock_state = self.inspect("nobody's").ok();
            Ok(lock_state
                .filter(|lock_state| lock_state.servers.iter().all(|view| view.error.is_none()))
                .map(drop))
        })
    }
}

impl Deref for RedlockTestbed {
    type Target = FolderTestbed;

    fn deref(&self) -> &FolderTestbed {
        &self.testbed
    }
}
