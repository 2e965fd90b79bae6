//! A Redis server of its own for a test.

use std::ops::Deref;

use anyhow::{Result, ensure};
use lab_servers::{Redis, Setup};

use crate::{Orders, Site, until};

/// A Redis server, takers for its locks, and an onlooker.
#[derive(Debug)]
pub struct RedisSite {
    // Before the server, which it uses.
    site: Site,
    /// The server, to be treated badly.
    pub redis: Redis,
}

impl RedisSite {
    /// A server with this set-up, whose locks are opened with these settings (`crash-grace=1s&…`).
    ///
    /// # Errors
    /// If its store cannot be opened.
    pub fn start(taker: &str, setup: Setup, settings: &str) -> Result<Self> {
        let redis = setup.start();
        let site = Site::at(taker, &format!("{}?{settings}", redis.url()))?;
        Ok(Self { site, redis })
    }

    /// All takers are gone. After one more hold of each name nothing of theirs is left: in line nobody, among the keys one for
    /// each name that will end by itself, and no channel but the onlooker's two.
    ///
    /// # Errors
    /// If anything is left, saying what.
    pub fn check_clean(&self, last: &Orders) -> Result<()> {
        for name in &last.names {
            self.start(Orders { names: vec![name.clone()], cycles: 1, ..last.clone() })?.finish()?;
        }
        self.check_empty(&last.names)?;
        ensure!(self.run(self.locks().names("", 10))?.is_empty(), "still in use");
        self.check_keys(&last.names)?;
        until("the channels of those who have gone to be gone", || {
            Ok((self.redis.command(&["PUBSUB", "CHANNELS", "*"]).list().len() <= 2).then_some(()))
        })
    }

    fn check_keys(&self, names: &[String]) -> Result<()> {
        for key in self.redis.command(&["KEYS", "*"]).texts() {
            ensure!(names.iter().any(|name| key == format!("leasehold:{{{name}}}")), "left behind: {key}");
            let left = self.redis.command(&["PTTL", key]).int();
            ensure!(left > 0, "{key} stays for ever");
        }
        Ok(())
    }
}

impl Deref for RedisSite {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}
