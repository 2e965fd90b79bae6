//! The settings of the store `redis` in its URL.

use std::time::Duration;

use super::number;
use crate::stores::url::{StoreUrl, duration};
use crate::{Error, Result};

/// The settings of the store `redis`. The other stores on Redis servers have their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct Settings {
    /// `None`: a crashed client's lock is free when its lease ends.
    pub(in crate::stores) crash_grace: Option<Duration>,
    pub(in crate::stores) replicas: u32,
    /// For how long a master grants nothing after a failover: the longest lease of all clients.
    /// `None`: it grants at once.
    pub(in crate::stores) failover_wait: Option<Duration>,
}

/// The default of the crash grace.
const CRASH_GRACE: Duration = Duration::from_secs(10);
const LONGEST_LEASE: Duration = Duration::from_secs(60);
const LONGEST_LEASE_MIN: Duration = Duration::from_millis(500);
const LONGEST_LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Settings {
    pub(in crate::stores) fn parse(url: &StoreUrl) -> Result<Self> {
        let mut settings = Self {
            crash_grace: Some(CRASH_GRACE),
            replicas: 0,
            failover_wait: failover_wait(url)?,
        };
        for (name, value) in url.settings.iter() {
            match name {
                "crash-grace" => settings.crash_grace = grace(value)?,
                "replicas" => settings.replicas = number(name, value)?,
                _ => {}
            }
        }
        Ok(settings)
    }
}

fn grace(text: &str) -> Result<Option<Duration>> {
    if text == "off" {
        return Ok(None);
    }
    check_grace(duration(text)).map(Some)
}

/// Returns the wait after a failover, from `after-failover=` and `longest-lease=`.
fn failover_wait(url: &StoreUrl) -> Result<Option<Duration>> {
    let longest = longest_lease(url)?;
    match url.settings.get("after-failover") {
        Some("wait") => Ok(Some(longest)),
        None | Some("grant") if url.settings.get("longest-lease").is_none() => Ok(None),
        None | Some("grant") => Err(Error::invalid(
            "longest-lease= requires after-failover=wait",
        )),
        Some(_) => Err(Error::invalid("after-failover= must be wait or grant")),
    }
}

/// Returns the longest lease of the URL, from `longest-lease=`.
pub(in crate::stores) fn longest_lease(url: &StoreUrl) -> Result<Duration> {
    match url.settings.get("longest-lease") {
        Some(text) => check_longest_lease(duration(text)),
        None => Ok(LONGEST_LEASE),
    }
}

fn check_longest_lease(lease: Duration) -> Result<Duration> {
    if (LONGEST_LEASE_MIN..=LONGEST_LEASE_MAX).contains(&lease) {
        return Ok(lease);
    }
    Err(
        Error::invalid("the longest lease must be from 500ms to 24 hours")
            .help("write longest-lease=60s"),
    )
}

/// Checks the range of a crash grace. A shorter one would treat a short network delay as a crash.
pub(in crate::stores) fn check_grace(grace: Duration) -> Result<Duration> {
    const MIN: Duration = Duration::from_millis(500);
    if grace >= MIN && grace <= Duration::from_secs(3600) {
        return Ok(grace);
    }
    Err(
        Error::invalid("the crash grace must be from 500ms to 1 hour")
            .help("write crash-grace=10s, or crash-grace=off"),
    )
}
