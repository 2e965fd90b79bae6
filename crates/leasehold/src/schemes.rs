//! The one table of the schemes of URLs.

#[cfg(feature = "file")]
use leasehold_core::internal::{FILE, SYSTEM};
use leasehold_core::internal::{MEMORY, StoreKind};
#[cfg(feature = "redis")]
use leasehold_redis::{REDIS, REDLOCK};
#[cfg(feature = "zookeeper")]
use leasehold_zookeeper::ZOOKEEPER;

use crate::{Error, Result};

/// The stores that URLs with these schemes name.
#[derive(Debug)]
pub(crate) struct Scheme {
    /// The words before the colon.
    names: &'static [&'static str],
    /// Whether a URL has no server, and so no user.
    pub(crate) is_local: bool,
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

static SCHEMES: &[Scheme] = &[
    Scheme {
        names: &["file"],
        is_local: true,
        store: "file",
        feature: "file",
        kind: in_build!("file", FILE),
    },
    Scheme {
        names: &["system"],
        is_local: true,
        store: "file",
        feature: "file",
        kind: in_build!("file", SYSTEM),
    },
    Scheme {
        names: &["memory"],
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
        is_local: false,
        store: "Redis",
        feature: "redis",
        kind: in_build!("redis", REDIS),
    },
    Scheme {
        names: &["redlock", "redlocks"],
        is_local: false,
        store: "Redis",
        feature: "redis",
        kind: in_build!("redis", REDLOCK),
    },
    Scheme {
        names: &["zookeeper", "zookeeper+tls"],
        is_local: false,
        store: "ZooKeeper",
        feature: "zookeeper",
        kind: in_build!("zookeeper", ZOOKEEPER),
    },
];

impl Scheme {
    /// Finds the entry with the name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SCHEMES.iter().find(|scheme| scheme.names.contains(&name))
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

#[cfg(test)]
mod tests {
    use leasehold_core::internal::is_scheme;

    use super::*;

    #[test]
    fn core_knows_every_scheme_that_errors_may_show() {
        for name in SCHEMES.iter().flat_map(|scheme| scheme.names) {
            assert!(is_scheme(name), "{name}");
        }
    }
}
