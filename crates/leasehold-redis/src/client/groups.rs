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
.or_off()
.documented(
    "10s",
    "see [`RedisBuilder::crash_grace`]; `off` turns detection off",
);
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
)
.documented(
    "30s",
    "the lease of holds that are renewed, as `lockWatchdogTimeout`",
);

pub(crate) const PASSWORD: Group = Setting::PASSWORD;
pub(crate) const TLS: Group = Setting::TLS;
pub(crate) const DIALECT: Group = &[Setting::word("dialect", &["plain", "redisson"]).of_format()];
pub(crate) const CLASSIC: Group = &[Setting::word("dialect", &["classic"]).of_format()];
pub(crate) const TOKENS: Group = &[Setting::switch("tokens").of_format()];
pub(crate) const REDISSON: Group = &[
    Setting::text("lock").of_format(),
    WATCHDOG,
    Setting::text("prefix").documented("app:", "put before each name, as by a `NameMapper`"),
];
pub(crate) const QUEUE: Group = &[
    CRASH_GRACE,
    Setting::number("replicas").documented("1", "see [`RedisBuilder::replicas`]"),
    Setting::RECORDS,
];
pub(crate) const FAILOVER: Group = &[
    Setting::word("after-failover", &["wait", "grant"])
        .documented("wait", "a new master grants nothing for the longest lease"),
    LONGEST_LEASE.documented(
        "60s",
        "the longest lease of this client; the largest of all counts",
    ),
];
pub(crate) const QUARANTINE: Group = &[
    LONGEST_LEASE.documented(
        "60s",
        "the longest lease of any client; all clients set the same",
    ),
    Setting::switch("quarantine").of_format().documented(
        "off",
        "for masters that never forget a vote (`appendfsync always`)",
    ),
];
pub(crate) const DATABASE: Group = &[
    Setting::number("db").documented("3", "the database, for a URL whose path names a socket"),
    Setting::word("protocol", &["2", "3"]).documented(
        "2",
        "RESP2, for proxies that accept RESP3 but do not implement it",
    ),
];
pub(crate) const SENTINEL: Group = &[
    Setting::text("sentinel-user").documented("name", "the user on the sentinels"),
    Setting::text("sentinel-password-file")
        .documented("/path", "a file with the password of the sentinels"),
];
pub(crate) const ANNOUNCED: Group = &[Setting::text("address-map").documented(
    "a:1=b:2,…",
    "where servers are reached that announce another address",
)];
pub(crate) const TLS_NAME: Group = &[Setting::text("server-name").with_tls().documented(
    "name",
    "the name in the server's certificate; `rediss` only",
)];
