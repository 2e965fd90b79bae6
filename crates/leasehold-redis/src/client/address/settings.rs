//! The settings of the store `redis` in its URL.

use std::time::Duration;

use super::super::groups::{CRASH_GRACE, LONGEST_LEASE};
use leasehold_core::internal::{Setting, StoreUrl};
use leasehold_core::{Error, Result};

/// The settings of the store `redis`. The other stores on Redis servers have their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None`: a crashed client's lock is free when its lease ends.
    pub(crate) crash_grace: Option<Duration>,
    pub(crate) replicas: u32,
    /// How long a record is kept after its last use.
    pub(crate) records: Duration,
    /// For how long a master grants nothing after a failover: the longest lease of all clients.
    /// `None`: it grants at once.
    pub(crate) failover_wait: Option<Duration>,
}

impl Settings {
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        Ok(Self {
            crash_grace: url.settings.duration_unless_off(&CRASH_GRACE),
            replicas: url.settings.number("replicas").unwrap_or(0),
            records: url.settings.duration(&Setting::RECORDS),
            failover_wait: failover_wait(url)?,
        })
    }
}

/// Returns the wait after a failover, from `after-failover=` and `longest-lease=`.
fn failover_wait(url: &StoreUrl) -> Result<Option<Duration>> {
    if url.settings.get("after-failover") == Some("wait") {
        return Ok(Some(url.settings.duration(&LONGEST_LEASE)));
    }
    match url.settings.get("longest-lease") {
        None => Ok(None),
        Some(_) => Err(Error::invalid(
            "longest-lease= requires after-failover=wait",
        )),
    }
}
