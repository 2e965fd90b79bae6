//! The one table of the schemes of URLs.

#[cfg(feature = "file")]
use leasehold_core::internal::{FILE, SYSTEM};
use leasehold_core::internal::{MEMORY, StoreKind};
#[cfg(feature = "postgres")]
use leasehold_postgres::POSTGRES;
#[cfg(feature = "redis")]
use leasehold_redis::{REDIS, REDLOCK};
#[cfg(feature = "zookeeper")]
use leasehold_zookeeper::ZOOKEEPER;

use crate::{Error, Result};

/// The stores that URLs with these schemes name.
#[derive(Debug)]
pub struct Scheme {
    /// The words before the colon.
    names: &'static [&'static str],
    /// URLs, and what they name, for the help of the command.
    pub help: &'static [(&'static str, &'static str)],
    /// Whether a URL has no server, and so no user.
    pub is_local: bool,
    /// What a build without the feature lacks.
    store: &'static str,
    /// The feature of this crate that adds the stores.
    feature: &'static str,
    /// `None` in a build without the feature.
    kind: Option<StoreKind>,
}

/// The kind of store, if this build has the feature.
macro_rules! in_build {
    ($feature:literal, $kind:ident) => {{
        #[cfg(feature = $feature)]
        let kind = Some($kind);
        #[cfg(not(feature = $feature))]
        let kind = None;
        kind
    }};
}

/// All schemes, in the order in which the help shows them.
pub static SCHEMES: &[Scheme] = &[
    Scheme {
        names: &["file"],
        help: &[
            ("file:/some/folder", "a folder on this machine"),
            (
                "file:/some/folder?mode=0660",
                "the same, with files for the members of its group",
            ),
            ("file:", "leasehold in $XDG_STATE_HOME or ~/.local/state"),
        ],
        is_local: true,
        store: "file",
        feature: "file",
        kind: in_build!("file", FILE),
    },
    Scheme {
        names: &["system"],
        help: &[("system:", "/var/lib/leasehold, for the group leasehold")],
        is_local: true,
        store: "file",
        feature: "file",
        kind: in_build!("file", SYSTEM),
    },
    Scheme {
        names: &["memory"],
        help: &[],
        is_local: true,
        store: "memory",
        feature: "",
        kind: Some(MEMORY),
    },
    Scheme {
        names: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
        ],
        help: &[
            ("redis://host:6379", "a Redis server"),
            ("rediss://host", "a Redis server, over TLS"),
            ("redis+unix:///path", "a Redis server, over its Unix socket"),
            (
                "redis+sentinel://s1,s2,s3/name",
                "the Redis master that sentinels name",
            ),
            ("redis+cluster://n1,n2,n3", "the masters of a Redis Cluster"),
            (
                "redis://host?dialect=plain",
                "a Redis server, in the format of redis-py and others",
            ),
            (
                "redis://host?dialect=redisson",
                "a Redis server, with the locks of Redisson",
            ),
        ],
        is_local: false,
        store: "Redis",
        feature: "redis",
        kind: in_build!("redis", REDIS),
    },
    Scheme {
        names: &["redlock", "redlocks"],
        help: &[
            (
                "redlock://host1,host2,host3",
                "independent Redis masters, of which a minority may fail",
            ),
            (
                "redlocks://host1,host2,host3",
                "independent Redis masters, over TLS",
            ),
            (
                "redlock://…?dialect=classic",
                "independent Redis masters, in the format of redsync",
            ),
        ],
        is_local: false,
        store: "Redis",
        feature: "redis",
        kind: in_build!("redis", REDLOCK),
    },
    Scheme {
        names: &["zookeeper", "zookeeper+tls"],
        help: &[
            (
                "zookeeper://host1,host2/folder",
                "ZooKeeper, in the format of Curator",
            ),
            ("zookeeper+tls://host1,host2", "ZooKeeper, over TLS"),
            (
                "zookeeper://…?dialect=kazoo",
                "ZooKeeper, in the format of kazoo",
            ),
        ],
        is_local: false,
        store: "ZooKeeper",
        feature: "zookeeper",
        kind: in_build!("zookeeper", ZOOKEEPER),
    },
    Scheme {
        names: &["postgres", "postgresql"],
        help: &[
            ("postgres://user@host/database", "a PostgreSQL database"),
            (
                "postgres:///database",
                "the same, by the server's socket on this machine",
            ),
        ],
        is_local: false,
        store: "PostgreSQL",
        feature: "postgres",
        kind: in_build!("postgres", POSTGRES),
    },
];

impl Scheme {
    /// Finds the entry with the name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SCHEMES.iter().find(|scheme| scheme.names.contains(&name))
    }

    /// Finds the entry for a URL.
    #[must_use]
    pub fn of(url: &str) -> Option<&'static Self> {
        Self::named(url.split_once(':')?.0)
    }

    /// Returns how URLs with each of the names begin.
    pub(crate) fn beginnings(&self) -> impl Iterator<Item = String> {
        let rest = if self.is_local { ":" } else { "://" };
        self.names.iter().map(move |name| format!("{name}{rest}"))
    }

    /// Returns how the stores are opened and examined.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) in a build without the feature.
    pub(crate) fn kind(&self) -> Result<StoreKind> {
        self.kind.ok_or_else(|| {
            let Self { store, feature, .. } = self;
            Error::unsupported(format!("this build has no {store} store"))
                .help(format!("build leasehold with its feature `{feature}`"))
        })
    }
}
