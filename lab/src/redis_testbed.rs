//! A Redis server of its own for a test.

use std::ops::Deref;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_servers::{Redis, Setup};

use crate::{FolderTestbed, WorkerConfig, hostile_names, until, until_within};

/// A Redis server, takers for its locks, and an onlooker.
#[derive(Debug)]
pub struct RedisTestbed {
    // Before the server, which it uses.
    testbed: FolderTestbed,
    /// The server, to be treated badly.
    pub redis: Redis,
}

impl RedisTestbed {
    /// A server with this set-up, whose locks are opened with these settings (`crash-grace=1s&…`).
    ///
    /// # Errors
    /// If its store cannot be opened.
    pub fn start(worker: &str, setup: Setup, settings: &str) -> Result<Self> {
        let redis = setup.start();
        let testbed = FolderTestbed::at(worker, &format!("{}?{settings}", redis.url()))?;
        Ok(Self { testbed, redis })
    }

    /// All takers are gone. After one more hold of each name nothing of theirs is left: in line nobody, among the keys one for
    /// each name that will end by itself, and no connection or channel but the onlooker's.
    ///
    /// # Errors
    /// If anything is left, saying what.
    pub fn check_clean(&self, last: &WorkerConfig) -> Result<()> {
        for name in &last.names {
            self.start(WorkerConfig {
                names: vec![name.clone()],
                cycles: 1,
                ..last.clone()
            })?
            .finish()?;
        }
        self.check_empty(&last.names)?;
        ensure!(
            self.run(self.locks().list("", 10))?.is_empty(),
            "still in use"
        );
        self.check_keys(&last.names)?;
        until("the connections of those who have gone to be gone", || {
            Ok((self.clients() <= OBSERVERS).then_some(()))
        })?;
        self.check_channels()
    }

    /// Waits until the leases of killed waiters have ended: they keep their positions until then.
    ///
    /// # Errors
    /// If somebody is in the queue for longer than any lease.
    pub fn outlast_killed_waiters(&self, names: &[String]) -> Result<()> {
        const LEASE_MAX: Duration = Duration::from_secs(40);
        let is_empty = || Ok(self.check_empty(names).is_ok().then_some(()));
        until_within(LEASE_MAX, "the leases of killed waiters to end", is_empty)
    }

    fn check_keys(&self, names: &[String]) -> Result<()> {
        for key in self.redis.command(&["KEYS", "*"]).texts() {
            let name = key
                .strip_prefix("leasehold:{")
                .and_then(|rest| rest.strip_suffix('}'))
                .map(hostile_names::decoded);
            ensure!(
                name.is_some_and(|name| names.contains(&name)),
                "left behind: {key}"
            );
            let left = self.redis.command(&["PTTL", key]).int();
            ensure!(0 < left && left <= LIFE_MAX, "{key} stays for {left} ms");
        }
        Ok(())
    }

    /// How many connections the server has, without the one that asks.
    fn clients(&self) -> usize {
        self.redis
            .command(&["CLIENT", "LIST"])
            .text()
            .lines()
            .count()
            - 1
    }

    /// The onlooker has one that tells of grants, and one that vouches for it, and is alone on both.
    fn check_channels(&self) -> Result<()> {
        let channels = self.redis.command(&["PUBSUB", "CHANNELS", "*"]);
        let channels = channels.texts();
        ensure!(channels.len() <= OBSERVERS, "channels: {channels:?}");
        for channel in channels {
            let told = self.redis.command(&["PUBSUB", "NUMSUB", channel]);
            ensure!(told.list()[1].int() == 1, "on {channel}: {told:?}");
        }
        Ok(())
    }
}

/// The connections of somebody who looks on, each with its channel.
const OBSERVERS: usize = 2;
/// In milliseconds: a name's last trace is gone two days after it was last waited for.
const LIFE_MAX: i64 = 2 * 24 * 60 * 60 * 1000;

impl Deref for RedisTestbed {
    type Target = FolderTestbed;

    fn deref(&self) -> &FolderTestbed {
        &self.testbed
    }
}
