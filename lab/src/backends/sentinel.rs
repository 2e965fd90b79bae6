//! A master and two replicas that three sentinels watch, in three configurations.

use std::time::Duration;

use anyhow::Result;
use lab_servers::{Redis, Sentinels, Setup};

use super::redis::{self, LEASE, SETTINGS};
use super::{Backend, Capability, Profile};
use crate::faults::Requirement;
use crate::{Testbed, WorkerConfig};

/// `redis+sentinel:`, in one configuration of servers and clients.
#[derive(Debug)]
pub(super) struct Sentinel {
    name: &'static str,
    configuration: Configuration,
}

/// The means that keep holds through a failover.
#[derive(Debug, PartialEq, Eq)]
enum Configuration {
    /// Nothing: a replica may lack the last grants.
    Plain,
    /// `replicas=1`, and a master without a replica that refuses writes.
    Replicated,
    /// `after-failover=wait`.
    Waiting,
}

pub(super) const PLAIN: Sentinel = Sentinel {
    name: "sentinel",
    configuration: Configuration::Plain,
};
pub(super) const REPLICATED: Sentinel = Sentinel {
    name: "sentinel-replicas",
    configuration: Configuration::Replicated,
};
pub(super) const WAITING: Sentinel = Sentinel {
    name: "sentinel-wait",
    configuration: Configuration::Waiting,
};

impl Backend for Sentinel {
    fn profile(&self) -> Profile {
        Profile {
            name: self.name,
            lease: LEASE,
            requested_lease: LEASE,
            recovery_seconds: 20,
            token_slack: 0,
            load_min: 2.0,
            has: &[Capability::Failover, Capability::Sentinels],
        }
    }

    fn start(&self, worker: &str, _: Requirement) -> Result<Testbed> {
        let group = Sentinels::of(&self.setup(), &Redis::setup());
        let url = format!(
            "{}?{}&{SETTINGS}{}",
            group.url(),
            group.settings(),
            self.settings()
        );
        Testbed::with_servers(worker, url, Vec::new(), group)
    }

    fn wait_until_ready(&self, _: &Testbed) -> Result<()> {
        Ok(())
    }

    fn plant(&self, testbed: &Testbed) -> Result<()> {
        redis::plant(testbed);
        Ok(())
    }

    fn verify_and_remove(&self, testbed: &Testbed) -> Result<usize> {
        redis::verify_and_remove(testbed)
    }

    fn check_clean(&self, testbed: &Testbed, last: &WorkerConfig) -> Result<()> {
        redis::check_clean_by_lease(self, testbed, last)
    }
}

impl Sentinel {
    fn setup(&self) -> Setup {
        if self.configuration != Configuration::Replicated {
            return Redis::setup();
        }
        Redis::setup()
            .config("min-replicas-to-write", "1")
            .config("min-replicas-max-lag", "1")
    }

    fn settings(&self) -> String {
        const LONGEST: Duration = LEASE;
        match self.configuration {
            Configuration::Plain => String::new(),
            Configuration::Replicated => "&replicas=1".to_owned(),
            Configuration::Waiting => {
                format!(
                    "&after-failover=wait&longest-lease={}ms",
                    LONGEST.as_millis()
                )
            }
        }
    }
}
