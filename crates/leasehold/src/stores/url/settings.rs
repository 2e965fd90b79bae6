//! The settings of URLs: which stores have each, and their values.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use StoreKind::{
    File, Redis, RedisCluster, RedisPlain, RedisSentinel, Redisson, RedissonSentinel, Redlock,
    ZooKeeper,
};

use super::decoded;
use crate::{Error, Result};

/// A store whose URLs have settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum StoreKind {
    File,
    Redis,
    RedisSentinel,
    RedisCluster,
    RedisPlain,
    Redisson,
    RedissonSentinel,
    Redlock,
    ZooKeeper,
}

struct Setting {
    name: &'static str,
    /// The stores that have it.
    stores: &'static [StoreKind],
    /// The value is a path of the machine, which may contain `@`.
    is_path: bool,
    /// The scheme of the URL must be one with TLS.
    needs_tls: bool,
}

/// All settings. An error lists those of a store in this order.
static SETTINGS: [Setting; 24] = [
    Setting::new("local", &[File]),
    Setting::new("mode", &[File]),
    Setting::new("session", &[ZooKeeper]),
    Setting::new("dialect", DIALECTS),
    Setting::new("tokens", &[RedisPlain, Redlock]),
    Setting::new("lock", &[Redisson, RedissonSentinel]),
    Setting::new("watchdog", &[Redisson, RedissonSentinel]),
    Setting::new("prefix", &[Redisson, RedissonSentinel]),
    Setting::new("acl", &[ZooKeeper]),
    Setting::new("crash-grace", &[Redis, RedisSentinel, RedisCluster]),
    Setting::new("replicas", &[Redis, RedisSentinel, RedisCluster]),
    Setting::new("after-failover", &[RedisSentinel]),
    Setting::new("longest-lease", &[RedisSentinel, Redlock]),
    Setting::new("quarantine", &[Redlock]),
    Setting::new("db", DATABASES),
    Setting::new("protocol", DATABASES),
    Setting::new("password-file", SERVERS).path(),
    Setting::new("sentinel-user", &[RedisSentinel, RedissonSentinel]),
    Setting::new("sentinel-password-file", &[RedisSentinel, RedissonSentinel]),
    Setting::new("address-map", ANNOUNCED),
    Setting::new("ca", SERVERS).path().with_tls(),
    Setting::new("cert", SERVERS).path().with_tls(),
    Setting::new("key", SERVERS).path().with_tls(),
    Setting::new("server-name", REDIS).with_tls(),
];

const DIALECTS: &[StoreKind] = &[RedisPlain, Redisson, RedissonSentinel, Redlock, ZooKeeper];
const ANNOUNCED: &[StoreKind] = &[RedisSentinel, RedissonSentinel, RedisCluster];
const DATABASES: &[StoreKind] = &[
    Redis,
    RedisSentinel,
    RedisPlain,
    Redisson,
    RedissonSentinel,
    Redlock,
];
const REDIS: &[StoreKind] = &[
    Redis,
    RedisSentinel,
    RedisCluster,
    RedisPlain,
    Redisson,
    RedissonSentinel,
    Redlock,
];
const SERVERS: &[StoreKind] = &[
    Redis,
    RedisSentinel,
    RedisCluster,
    RedisPlain,
    Redisson,
    RedissonSentinel,
    Redlock,
    ZooKeeper,
];

impl Setting {
    const fn new(name: &'static str, stores: &'static [StoreKind]) -> Self {
        Self {
            name,
            stores,
            is_path: false,
            needs_tls: false,
        }
    }

    const fn path(self) -> Self {
        Self {
            is_path: true,
            ..self
        }
    }

    const fn with_tls(self) -> Self {
        Self {
            needs_tls: true,
            ..self
        }
    }
}

impl StoreKind {
    fn settings(self) -> impl Iterator<Item = &'static Setting> {
        let of_store = move |setting: &&Setting| setting.stores.contains(&self);
        SETTINGS.iter().filter(of_store)
    }
}

/// Writes the name of the store in error messages.
impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Redis => "Redis",
            Self::RedisSentinel => "Redis Sentinel",
            Self::RedisCluster => "Redis Cluster",
            Self::RedisPlain => "plain Redis",
            Self::Redisson => "Redisson",
            Self::RedissonSentinel => "Redisson on Sentinel",
            Self::Redlock => "Redlock",
            Self::ZooKeeper => "ZooKeeper",
        })
    }
}

/// Returns whether the value of a setting is a path.
pub(super) fn is_path(name: &str) -> bool {
    SETTINGS
        .iter()
        .any(|setting| setting.is_path && setting.name == name)
}

/// The settings of a URL in the order in which the URL states them.
#[derive(Clone)]
pub(in crate::stores) struct Settings(Vec<(&'static Setting, String)>);

impl Settings {
    /// Parses `name=value&name=value`.
    pub(in crate::stores) fn parse(text: &str, store: StoreKind) -> Result<Self> {
        let mut settings = Vec::new();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let Some(known) = store.settings().find(|known| known.name == name) else {
                let message = format!("{name:?} is not a setting of a {store} URL");
                let names: Vec<&str> = store.settings().map(|setting| setting.name).collect();
                let help = format!("the settings are: {}", names.join(", "));
                return Err(Error::invalid(message).help(help));
            };
            settings.push((known, decoded(value)?));
        }
        Ok(Self(settings))
    }

    /// Returns the value of a setting; the last one if the URL states it several times.
    pub(in crate::stores) fn get(&self, name: &str) -> Option<&str> {
        let mut latest_first = self.0.iter().rev();
        let (_, value) = latest_first.find(|(setting, _)| setting.name == name)?;
        Some(value)
    }

    /// Returns the value of a setting that is a whole number.
    pub(in crate::stores) fn number(&self, name: &str) -> Result<Option<u32>> {
        self.get(name).map(|text| number(name, text)).transpose()
    }

    /// Returns whether a setting is `on` or `off`.
    pub(in crate::stores) fn switch(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(_) => Err(Error::invalid(format!("{name}= must be on or off"))),
        }
    }

    /// Returns a duration; zero if the value is not `500ms`, `10s` or `2m`, so that a check of
    /// its range fails.
    pub(in crate::stores) fn duration(&self, name: &str) -> Option<Duration> {
        self.get(name).map(duration)
    }

    /// Returns the name of a setting that needs TLS.
    pub(super) fn first_with_tls(&self) -> Option<&'static str> {
        let (setting, _) = self.0.iter().find(|(setting, _)| setting.needs_tls)?;
        Some(setting.name)
    }
}

/// Parses a whole number; `name` is its setting.
pub(in crate::stores) fn number(name: &str, text: &str) -> Result<u32> {
    text.parse()
        .map_err(|_| Error::invalid(format!("{name} takes a whole number")))
}

/// Checks the range of a duration.
pub(in crate::stores) fn within(
    range: RangeInclusive<Duration>,
    duration: Duration,
    message: &str,
    help: &str,
) -> Result<Duration> {
    if range.contains(&duration) {
        return Ok(duration);
    }
    Err(Error::invalid(message).help(help))
}

/// Parses `500ms`, `10s` or `2m`; returns zero for a text that is not a duration.
fn duration(text: &str) -> Duration {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let count: u64 = digits.parse().unwrap_or(0);

    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => 0,
    };
    Duration::from_millis(count.saturating_mul(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_setting_is_refused_with_the_list_of_settings() {
        let error = Settings::parse("what=1", ZooKeeper).err().expect("unknown");
        let text = error.to_string();
        assert!(text.contains("\"what\" is not a setting of a ZooKeeper URL"));
        let known = "session, dialect, acl, password-file, ca, cert, key";
        assert!(text.contains(known), "{text}");
    }

    #[test]
    fn duration_without_unit_is_zero() {
        assert_eq!(duration("500ms"), Duration::from_millis(500));
        assert_eq!(duration("2m"), Duration::from_secs(120));
        assert_eq!(duration("5"), Duration::ZERO);
    }
}
