//! The settings of the store `redis` in its URL.

use std::time::Duration;

use leasehold_core::internal::{Setting, StoreUrl};
use leasehold_core::{Error, Result};

/// The settings of the store `redis`. The other stores on Redis servers have their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None`: a crashed client's lock is free when its lease ends.
    pub(crate) crash_grace: Option<Duration>,
    pub(crate) replicas: u32,
    /// For how long a master grants nothing after a failover: the longest lease of all clients.
    /// `None`: it grants at once.
    pub(crate) failover_wait: Option<Duration>,
}

/// The default of the crash grace.
const CRASH_GRACE: Duration = Duration::from_secs(10);
const CRASH_GRACE_MIN: Duration = Duration::from_millis(500);
const CRASH_GRACE_MAX: Duration = Duration::from_secs(3600);
const LONGEST_LEASE: Duration = Duration::from_secs(60);
const LONGEST_LEASE_MIN: Duration = Duration::from_millis(500);
const LONGEST_LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Settings {
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        Ok(Self {
            crash_grace: crash_grace(url)?,
            replicas: url.settings.number("replicas")?.unwrap_or(0),
            failover_wait: failover_wait(url)?,
        })
    }
}

fn crash_grace(url: &StoreUrl) -> Result<Option<Duration>> {
    if url.settings.get("crash-grace") == Some("off") {
        return Ok(None);
    }
    let grace = url.settings.duration("crash-grace").unwrap_or(CRASH_GRACE);
    check_grace(grace).map(Some)
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
pub(crate) fn longest_lease(url: &StoreUrl) -> Result<Duration> {
    let stated = url.settings.duration("longest-lease");
    Setting::within(
        LONGEST_LEASE_MIN..=LONGEST_LEASE_MAX,
        stated.unwrap_or(LONGEST_LEASE),
        "the longest lease must be from 500ms to 24 hours",
        "write longest-lease=60s",
    )
}

/// Checks the range of a crash grace. A shorter one would treat a short network delay as a crash.
pub(crate) fn check_grace(grace: Duration) -> Result<Duration> {
    Setting::within(
        CRASH_GRACE_MIN..=CRASH_GRACE_MAX,
        grace,
        "the crash grace must be from 500ms to 1 hour",
        "write crash-grace=10s, or crash-grace=off",
    )
}
