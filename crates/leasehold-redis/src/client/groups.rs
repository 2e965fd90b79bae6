//! The settings of URLs that stores on Redis servers have, in groups.

use leasehold_core::internal::Setting;

type Group = &'static [Setting];

pub(crate) const PASSWORD: Group = Setting::PASSWORD;
pub(crate) const TLS: Group = Setting::TLS;
pub(crate) const DIALECT: Group = &[Setting::text("dialect")];
pub(crate) const TOKENS: Group = &[Setting::text("tokens")];
pub(crate) const REDISSON: Group = &[
    Setting::text("lock"),
    Setting::text("watchdog"),
    Setting::text("prefix"),
];
pub(crate) const QUEUE: Group = &[Setting::text("crash-grace"), Setting::text("replicas")];
pub(crate) const FAILOVER: Group = &[
    Setting::text("after-failover"),
    Setting::text("longest-lease"),
];
pub(crate) const QUARANTINE: Group = &[Setting::text("longest-lease"), Setting::text("quarantine")];
pub(crate) const DATABASE: Group = &[Setting::text("db"), Setting::text("protocol")];
pub(crate) const SENTINEL: Group = &[
    Setting::text("sentinel-user"),
    Setting::text("sentinel-password-file"),
];
pub(crate) const ANNOUNCED: Group = &[Setting::text("address-map")];
pub(crate) const TLS_NAME: Group = &[Setting::text("server-name").with_tls()];
