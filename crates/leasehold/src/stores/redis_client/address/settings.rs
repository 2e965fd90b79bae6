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
}

/// The default of the crash grace.
const CRASH_GRACE: Duration = Duration::from_secs(10);

impl Settings {
    pub(super) fn parse(url: &StoreUrl) -> Result<Self> {
        let mut settings = Self {
            crash_grace: Some(CRASH_GRACE),
            replicas: 0,
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
