//! The option `--dialect`: whose locks on a server a command looks at.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use clap::{Args, ValueEnum};
use leasehold::{Error, LockState, Locks, Result};

use super::store::Store;

#[derive(Clone, Debug, Args)]
pub(crate) struct InspectedStore {
    #[command(flatten)]
    pub(crate) store: Store,

    /// Use the locks of another library on the server of the store
    #[arg(long, value_name = "LIBRARY", value_enum)]
    dialect: Option<Dialect>,

    /// Use the locks of all known libraries on the server of the store
    ///
    /// A single Redis server or ZooKeeper.
    #[arg(long, conflicts_with = "dialect")]
    all: bool,
}

/// The locks of one library on the server of a store.
pub(crate) struct Inspected {
    /// The value of --dialect, or `leasehold`.
    pub(crate) format: &'static str,
    pub(crate) locks: Locks,
}

/// The libraries whose locks a store can read, by the service that keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// Redisson on Redis: RLock, RFencedLock and RFairLock
    Redisson,
    /// RReadWriteLock of Redisson on Redis
    RedissonRw,
    /// RPermitExpirableSemaphore of Redisson on Redis
    RedissonSemaphore,
    /// redis-py and others on Redis, whose locks are strings
    Plain,
    /// redsync and others on several Redis masters
    Classic,
    /// Curator on ZooKeeper
    Curator,
    /// kazoo on ZooKeeper
    Kazoo,
}

/// The settings of a URL that do not depend on the format of the locks.
const CONNECTION: [&str; 11] = [
    "db",
    "protocol",
    "password-file",
    "ca",
    "cert",
    "key",
    "session",
    "acl",
    "longest-lease",
    "prefix",
    "reply-timeout",
];

const REDISSON: &str = "dialect=redisson";

impl InspectedStore {
    pub(crate) async fn open(&self) -> Result<Locks> {
        let Some(dialect) = self.dialect else {
            return self.store.open().await;
        };
        let url = dialect.url(&self.store.url)?;
        self.at(url).open().await
    }

    /// Opens the store, and with --all the same server for the locks of each other library.
    pub(crate) async fn open_all(&self) -> Result<Vec<Inspected>> {
        let own = self.open().await?;
        let format = self.dialect.map_or("leasehold", Dialect::name);
        let own_url = own.url().to_owned();
        let mut opened = vec![Inspected { format, locks: own }];
        if !self.all {
            return Ok(opened);
        }

        for dialect in Dialect::of(&self.store.url)? {
            let url = dialect.url(&self.store.url)?;
            if url == self.store.url {
                continue;
            }
            let locks = self.at(url).open().await?;
            // The order of settings may differ. The shown URL of ZooKeeper has no dialect.
            if dialect.service() != "redis" || locks.url() != own_url {
                let format = dialect.name();
                opened.push(Inspected { format, locks });
            }
        }
        Ok(opened)
    }

    /// Names the store, and where its URL comes from.
    pub(crate) fn describe(&self, opened: &[Inspected]) -> String {
        let url = opened.first().map_or("", |inspected| inspected.locks.url());
        self.store.origin.describe(url)
    }

    /// Returns the store with the URL of another dialect.
    fn at(&self, url: String) -> Store {
        let origin = self.store.origin;
        Store { url, origin }
    }
}

impl Inspected {
    /// Returns the state of a lock; `None` if the name is in use in another format.
    pub(crate) async fn inspect(&self, name: &str) -> Result<Option<LockState>> {
        in_this_format(self.locks.inspect(name).await)
    }
}

/// Returns `None` for the error of a key or a node that another format uses.
pub(crate) fn in_this_format<T>(reply: Result<T>) -> Result<Option<T>> {
    match reply {
        Err(error) if error.is_damaged() || error.is_mismatch() || error.is_invalid() => Ok(None),
        reply => reply.map(Some),
    }
}

impl Dialect {
    /// Returns the dialects of the service of a URL.
    fn of(url: &str) -> Result<impl Iterator<Item = Self>> {
        let scheme = url.split("://").next().unwrap_or_default();
        let service = match scheme {
            "redis" | "rediss" | "redis+unix" => "redis",
            "zookeeper" | "zookeeper+tls" => "zookeeper",
            _ => {
                let error = Error::unsupported("--all is for a single Redis server or ZooKeeper");
                return Err(error.help("leave it out, or give --dialect"));
            }
        };
        let all = Self::value_variants().iter().copied();
        Ok(all.filter(move |dialect| dialect.service() == service))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::RedissonRw => "redisson-rw",
            Self::RedissonSemaphore => "redisson-semaphore",
            Self::Plain => "plain",
            Self::Classic => "classic",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        }
    }

    /// Returns the URL with this dialect in place of its own.
    ///
    /// # Errors
    /// Invalid if the service of the URL has no such locks.
    fn url(self, url: &str) -> Result<String> {
        let (base, settings) = url.split_once('?').unwrap_or((url, ""));
        let setting = self.setting();
        let settings: Vec<&str> = settings.split('&').collect();
        if !base.starts_with(self.service()) {
            let service = self.service();
            let error = Error::invalid("the store does not have locks of this library");
            return Err(error.help(format!("write --store {service}… with this --dialect")));
        }
        let is_other_class = |one: &&str| ["lock=rw", "lock=semaphore"].contains(one);
        if settings.contains(&setting) && !settings.iter().any(is_other_class) {
            return Ok(url.to_owned());
        }

        let is_redisson = setting.starts_with(REDISSON);
        let is_kept = |one: &&str| {
            let name = one.split('=').next().unwrap_or_default();
            CONNECTION.contains(&name) && (name != "prefix" || is_redisson)
        };
        let kept = settings.into_iter().filter(is_kept);
        let settings: Vec<&str> = kept
            .chain([setting])
            .filter(|one| !one.is_empty())
            .collect();
        let separator = if settings.is_empty() { "" } else { "?" };
        Ok(format!("{base}{separator}{}", settings.join("&")))
    }

    fn service(self) -> &'static str {
        match self {
            Self::Redisson | Self::RedissonRw | Self::RedissonSemaphore | Self::Plain => "redis",
            Self::Classic => "redlock",
            Self::Curator | Self::Kazoo => "zookeeper",
        }
    }

    /// Returns the setting of the URL; empty for the format that leasehold uses itself.
    fn setting(self) -> &'static str {
        match self {
            Self::Redisson => REDISSON,
            Self::RedissonRw => "dialect=redisson&lock=rw",
            Self::RedissonSemaphore => "dialect=redisson&lock=semaphore",
            Self::Plain => "dialect=plain",
            Self::Classic => "dialect=classic",
            Self::Kazoo => "dialect=kazoo",
            Self::Curator => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G-56.
    #[test]
    fn dialect_replaces_the_settings_of_the_format() {
        for (url, dialect, expected) in [
            ("redis://a", Dialect::Redisson, "redis://a?dialect=redisson"),
            (
                "rediss://a?ca=/x&crash-grace=5s",
                Dialect::Plain,
                "rediss://a?ca=/x&dialect=plain",
            ),
            (
                "redis://a?dialect=redisson&lock=fenced&prefix=b",
                Dialect::Redisson,
                "redis://a?dialect=redisson&lock=fenced&prefix=b",
            ),
            (
                "redis://a?dialect=redisson&lock=rw&prefix=b",
                Dialect::Redisson,
                "redis://a?prefix=b&dialect=redisson",
            ),
            (
                "redis://a?lock=rw&prefix=b&dialect=redisson",
                Dialect::RedissonSemaphore,
                "redis://a?prefix=b&dialect=redisson&lock=semaphore",
            ),
            (
                "redis://a?dialect=redisson&lock=fenced&prefix=b",
                Dialect::Plain,
                "redis://a?dialect=plain",
            ),
            (
                "zookeeper://a/b?dialect=kazoo&session=30s",
                Dialect::Curator,
                "zookeeper://a/b?session=30s",
            ),
            ("zookeeper://a/b", Dialect::Curator, "zookeeper://a/b"),
            (
                "redlock://a,b,c?quarantine=off&longest-lease=5s",
                Dialect::Classic,
                "redlock://a,b,c?longest-lease=5s&dialect=classic",
            ),
        ] {
            let replaced = dialect.url(url);
            assert_eq!(replaced.as_deref().ok(), Some(expected), "{url}");
        }
    }

    #[test]
    fn dialect_of_another_service_is_refused() {
        for (url, dialect) in [
            ("file:/a", Dialect::Redisson),
            ("redis://me:secret@a", Dialect::Kazoo),
            ("redlock://a,b,c", Dialect::Plain),
        ] {
            let error = dialect.url(url).expect_err(url);
            assert!(error.is_invalid());
            assert!(!error.to_string().contains("secret"));
        }
    }
}
