//! The settings of URLs that stores on Redis servers have, in groups.

use std::time::Duration;

use leasehold_core::internal::Setting;

type Group = &'static [Setting];

/// A shorter grace would treat a short network delay as a crash.
pub(crate) const CRASH_GRACE: Setting = Setting::duration(
    "crash-grace",
    Duration::from_millis(500)..=Duration::from_secs(3600),
    Duration::from_secs(10),
)
.or_off();
pub(crate) const LONGEST_LEASE: Setting = Setting::duration(
    "longest-lease",
    Duration::from_millis(500)..=Duration::from_secs(24 * 60 * 60),
    Duration::from_secs(60),
);
/// A shorter timeout of the watchdog would lose locks in a short delay.
pub(crate) const WATCHDOG: Setting = Setting::duration(
    "watchdog",
    Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60),
    Duration::from_secs(30),
);

pub(crate) const PASSWORD: Group = Setting::PASSWORD;
pub(crate) const TLS: Group = Setting::TLS;
pub(crate) const DIALECT: Group = &[Setting::word("dialect", &["plain", "redisson"]).of_format()];
pub(crate) const CLASSIC: Group = &[Setting::word("dialect", &["classic"]).of_format()];
pub(crate) const TOKENS: Group = &[Setting::switch("tokens").of_format()];
pub(crate) const REDISSON: Group = &[
    Setting::text("lock").of_format(),
    WATCHDOG,
    Setting::text("prefix"),
];
pub(crate) const QUEUE: Group = &[CRASH_GRACE, Setting::number("replicas"), Setting::RECORDS];
pub(crate) const FAILOVER: Group = &[
    Setting::word("after-failover", &["wait", "grant"]),
    LONGEST_LEASE,
];
pub(crate) const QUARANTINE: Group = &[LONGEST_LEASE, Setting::switch("quarantine").of_format()];
pub(crate) const DATABASE: Group = &[
    Setting::number("db"),
    Setting::word("protocol", &["2", "3"]),
];
pub(crate) const SENTINEL: Group = &[
    Setting::text("sentinel-user"),
    Setting::text("sentinel-password-file"),
];
pub(crate) const ANNOUNCED: Group = &[Setting::text("address-map")];
pub(crate) const TLS_NAME: Group = &[Setting::text("server-name").with_tls()];
