//! The one table of the stores: a line for each kind.

use std::path::PathBuf;

use leasehold_core::internal::{StoreKind, UnopenedStore};

use crate::{Error, Result};

/// A kind of stores, which may be absent in this build.
pub(crate) struct Entry {
    /// Each of its schemes begins with it.
    scheme: &'static str,
    /// What a build without the feature lacks.
    store: &'static str,
    /// The feature of this crate that adds the stores.
    feature: &'static str,
    /// `None` in a build without the feature.
    pub(crate) kind: Option<&'static StoreKind>,
}

macro_rules! entry {
    ($scheme:literal, $store:literal, $kind:path) => {
        Entry {
            scheme: $scheme,
            store: $store,
            feature: "",
            kind: Some(&$kind),
        }
    };
    ($scheme:literal, $store:literal, $kind:path, in $feature:literal) => {{
        #[cfg(feature = $feature)]
        let kind: Option<&'static StoreKind> = Some(&$kind);
        #[cfg(not(feature = $feature))]
        let kind: Option<&'static StoreKind> = None;
        Entry {
            scheme: $scheme,
            store: $store,
            feature: $feature,
            kind,
        }
    }};
}

/// All kinds, in the order in which the help shows them. The longest of two like schemes comes first.
pub(crate) static ENTRIES: &[Entry] = &[
    entry!("file", "file", leasehold_core::internal::FILE, in "file"),
    entry!("system", "file", leasehold_core::internal::SYSTEM, in "file"),
    entry!("memory", "memory", leasehold_core::internal::MEMORY),
    entry!("postgres", "PostgreSQL", leasehold_postgres::POSTGRES, in "postgres"),
    entry!("redis", "Redis", leasehold_redis::REDIS, in "redis"),
    entry!("redlock", "Redis", leasehold_redis::REDLOCK, in "redis"),
    entry!("zookeeper", "ZooKeeper", leasehold_zookeeper::ZOOKEEPER, in "zookeeper"),
];

impl Entry {
    /// Finds the entry of a scheme.
    pub(crate) fn of_scheme(scheme: &str) -> Option<&'static Self> {
        ENTRIES.iter().find(|entry| match entry.kind {
            Some(kind) => kind.schemes().any(|known| known == scheme),
            None => scheme.starts_with(entry.scheme),
        })
    }

    /// Returns how the URLs begin.
    pub(crate) fn beginnings(&self) -> Vec<String> {
        let rest = if self.is_local() { ":" } else { "://" };
        let schemes = match self.kind {
            Some(kind) => kind.schemes().collect(),
            None => vec![self.scheme],
        };
        let beginning = |scheme| format!("{scheme}{rest}");
        schemes.into_iter().map(beginning).collect()
    }

    /// Whether a URL has no server, and so no user.
    pub(crate) fn is_local(&self) -> bool {
        self.kind.is_some_and(StoreKind::is_local)
    }

    /// Parses the URL of a store.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported) in a build without the feature.
    pub(crate) fn prepare(&self, url: &str) -> Result<UnopenedStore> {
        let Some(kind) = self.kind else {
            let Self { store, feature, .. } = self;
            let error = Error::unsupported(format!("this build has no {store} store"));
            return Err(error.help(format!("build leasehold with its feature `{feature}`")));
        };
        (kind.prepare)(url)
    }
}

/// Returns the kinds of stores that this build has.
pub fn kinds() -> impl Iterator<Item = &'static StoreKind> {
    ENTRIES.iter().filter_map(|entry| entry.kind)
}

/// Returns the kind of the store of a URL.
#[must_use]
pub fn kind_of(url: &str) -> Option<&'static StoreKind> {
    Entry::of_scheme(url.split_once(':')?.0)?.kind
}

/// Returns the folder that a URL names.
#[must_use]
pub fn folder_of(url: &str) -> Option<PathBuf> {
    kind_of(url)?.folder(url)
}

/// Returns the advice to users of a scheme of another program, whose service leasehold supports.
pub(crate) fn alias(scheme: &str) -> Option<&'static str> {
    let mut aliases = kinds().flat_map(|kind| kind.aliases);
    let (_, advice) = aliases.find(|(alias, _)| *alias == scheme)?;
    Some(advice)
}

/// Services on which other lock programs keep locks.
pub(crate) const SERVICES: &[(&str, &str)] = &[
    ("consul", "Consul"),
    ("cassandra", "Cassandra"),
    ("cockroachdb", "CockroachDB"),
    ("dynamodb", "DynamoDB"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("gcs", "Google Cloud Storage"),
    ("gs", "Google Cloud Storage"),
    ("hazelcast", "Hazelcast"),
    ("http", "a web server"),
    ("https", "a web server"),
    ("k8s", "Kubernetes"),
    ("kubernetes", "Kubernetes"),
    ("mariadb", "MariaDB"),
    ("memcache", "memcached"),
    ("memcached", "memcached"),
    ("mongodb", "MongoDB"),
    ("mongodb+srv", "MongoDB"),
    ("mssql", "SQL Server"),
    ("mysql", "MySQL"),
    ("nats", "NATS"),
    ("nfs", "NFS"),
    ("s3", "S3"),
    ("sqlite", "SQLite"),
    ("sqlserver", "SQL Server"),
];
