//! Opening a store by its URL: the one list of schemes.

mod examine;
mod shown_url;
mod unknown_url;

use std::sync::Arc;

use tokio::runtime::Handle;

pub use examine::examine;

use crate::{Error, Locks, Result, Store, stores};
use shown_url::redacted;
pub(crate) use shown_url::without_user;

/// Opens the store of a URL.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process (`stores::Memory`), for tests; each `open` creates a store |
/// | `file:/var/lib/app/locks` | a folder (`stores::File`) of this machine, created if absent |
/// | `file:/mnt/x?local=yes` | a folder on a file system that you declare to be local |
/// | `file:/srv/x?mode=0660` | a folder whose files the members of its group may use |
/// | `file:` | a folder of the user: `$XDG_STATE_HOME/leasehold` or `~/.local/state/leasehold` |
/// | `system:` | `/var/lib/leasehold`, for the users of the group `leasehold` |
/// | `redis://host:6379` | a Redis server (`stores::Redis`) |
/// | `rediss://host:6379` | a Redis server with TLS |
/// | `redis+unix:///path` | a Redis server by its socket |
/// | `redis+sentinel://s1,s2,s3/mymaster` | the Redis master that sentinels name |
/// | `rediss+sentinel://s1,s2,s3/mymaster` | the same with TLS |
/// | `redis+cluster://host1,host2,host3` | the masters of a Redis Cluster |
/// | `rediss+cluster://host1,host2,host3` | the same with TLS |
/// | `redis://host:6379?dialect=plain` | the format of redis-py (`stores::RedisPlain`) |
/// | `redis://host:6379?dialect=redisson` | the locks of Redisson (`stores::Redisson`) |
/// | `redis+sentinel://s1,s2/mymaster?dialect=redisson` | the same on the master of sentinels |
/// | `redlock://a,b,c` | Redis servers (`stores::Redlock`) of which a minority may fail |
/// | `redlocks://a,b,c` | the same with TLS |
/// | `zookeeper://host1,host2,host3/folder` | ZooKeeper (`stores::ZooKeeper`) |
/// | `zookeeper+tls://host1,host2,host3/folder` | ZooKeeper with TLS |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// # assert_eq!(locks.url(), "memory:");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`is_invalid`](Error::is_invalid) for an invalid URL, [`is_unsupported`](Error::is_unsupported)
/// for a store whose feature this build lacks, and the errors of connecting to the store.
///
/// # Cancel safety
/// Dropping the future closes every connection.
pub async fn open(url: &str) -> Result<Locks> {
    open_on(url, Handle::try_current().ok()).await
}

/// Opens as [`open`]. If `runtime` is given, it drives connections in addition to those of the
/// background thread.
pub(crate) async fn open_on(url: &str, runtime: Option<Handle>) -> Result<Locks> {
    let opened = open_store(url, runtime).await;
    opened
        .and_then(|OpenedStore { store, shown_url }| Locks::from_arc(store, &shown_url))
        .map_err(|error| error.during("open the store", &redacted(url), None))
}

/// A store without an engine.
pub(crate) struct OpenedStore {
    pub(crate) store: Arc<dyn Store>,
    /// The URL without its password.
    shown_url: String,
}

impl OpenedStore {
    fn new(store: impl Store, shown_url: String) -> Self {
        Self {
            store: Arc::new(store),
            shown_url,
        }
    }
}

/// The store of a URL, as its scheme names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    Memory,
    File,
    /// The folder that the users of a group share.
    System,
    Redis,
    Redlock,
    ZooKeeper,
}

/// The schemes that [`open`] knows.
const SCHEMES: [(&str, StoreKind); 14] = [
    ("file", StoreKind::File),
    ("system", StoreKind::System),
    ("memory", StoreKind::Memory),
    ("redis", StoreKind::Redis),
    ("rediss", StoreKind::Redis),
    ("redis+unix", StoreKind::Redis),
    ("redis+sentinel", StoreKind::Redis),
    ("rediss+sentinel", StoreKind::Redis),
    ("redis+cluster", StoreKind::Redis),
    ("rediss+cluster", StoreKind::Redis),
    ("redlock", StoreKind::Redlock),
    ("redlocks", StoreKind::Redlock),
    ("zookeeper", StoreKind::ZooKeeper),
    ("zookeeper+tls", StoreKind::ZooKeeper),
];

impl StoreKind {
    fn of(scheme: &str) -> Option<Self> {
        let known = SCHEMES.iter().find(|(known, _)| *known == scheme);
        known.map(|(_, store)| *store)
    }

    /// Whether a URL has no server, and so no user.
    fn is_local(self) -> bool {
        matches!(self, Self::Memory | Self::File | Self::System)
    }

    /// Returns the error of a build without the store.
    fn missing(self) -> Error {
        let (store, feature) = match self {
            Self::Redis | Self::Redlock => ("Redis", "redis"),
            Self::ZooKeeper => ("ZooKeeper", "zookeeper"),
            Self::Memory | Self::File | Self::System => ("file", "file"),
        };
        Error::unsupported(format!("this build has no {store} store"))
            .help(format!("build leasehold with its feature `{feature}`"))
    }
}

/// Opens the store of a URL without an engine.
#[cfg_attr(
    not(feature = "redis"),
    allow(unused_variables, reason = "only Redis takes a runtime")
)]
pub(crate) async fn open_store(url: &str, runtime: Option<Handle>) -> Result<OpenedStore> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let kind = StoreKind::of(scheme).ok_or_else(|| unknown_url::error(url))?;
    if kind.is_local() && shown_url::names_user(scheme, rest) {
        let error = Error::invalid(format!("{scheme}: has no user and no password"));
        return Err(
            error.help("write file:/some/folder, or the scheme of a server, as redis://host")
        );
    }

    match kind {
        StoreKind::Memory if rest.is_empty() => {
            let store = stores::Memory::new();
            Ok(OpenedStore::new(store, "memory:".to_owned()))
        }
        StoreKind::Memory => Err(Error::invalid("memory: takes no path")),
        #[cfg(feature = "file")]
        StoreKind::File => {
            let store = stores::File::at_url_path(rest)?;
            let shown_url = store.url();
            Ok(OpenedStore::new(store, shown_url))
        }
        #[cfg(feature = "file")]
        StoreKind::System => {
            let store = stores::File::at_system_url(rest)?;
            Ok(OpenedStore::new(store, "system:".to_owned()))
        }
        #[cfg(feature = "redis")]
        StoreKind::Redlock => {
            let builder = stores::Redlock::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
        #[cfg(feature = "redis")]
        StoreKind::Redis => open_redis(url, runtime).await,
        #[cfg(feature = "zookeeper")]
        StoreKind::ZooKeeper => {
            let builder = stores::ZooKeeper::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect().await?;
            Ok(OpenedStore::new(store, shown_url))
        }
        #[allow(unreachable_patterns, reason = "a build may have all stores")]
        _ => Err(kind.missing()),
    }
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str, runtime: Option<Handle>) -> Result<OpenedStore> {
    match dialect(url) {
        None => {
            let builder = stores::Redis::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
        Some("redisson") => {
            let builder = stores::Redisson::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
        Some(_) => {
            let builder = stores::RedisPlain::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
    }
}

/// Returns the library whose format the URL selects.
#[cfg(feature = "redis")]
fn dialect(url: &str) -> Option<&str> {
    let (_, settings) = url.split_once('?')?;
    let mut settings = settings.split('&');
    settings.find_map(|setting| setting.strip_prefix("dialect="))
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "redis")]
    use std::time::Duration;

    #[cfg(feature = "redis")]
    use tokio::time::timeout;

    use super::*;

    #[cfg(feature = "redis")]
    #[tokio::test]
    async fn unencoded_passwords_are_not_shown() {
        for secret in [
            "12/secret",
            "12?secret",
            "12#secret",
            "secret/12",
            "12?db=secret",
            "1?secret=1",
            "secret",
        ] {
            for url in [
                format!("redis://me:{secret}@host"),
                format!("redis://:{secret}@host"),
                "redis://:secret".into(),
            ] {
                let shown = match timeout(Duration::from_secs(5), open(&url))
                    .await
                    .expect("at once")
                {
                    Ok(locks) => locks.url().to_owned(),
                    Err(error) => format!("{error:?}"),
                };
                assert!(
                    !shown.contains("secret") && !shown.contains(":12"),
                    "{url}: {shown}"
                );
            }
        }
    }

    #[tokio::test]
    async fn wrong_urls_are_refused_with_help() {
        for url in [
            "",
            "nonsense",
            "ftp://x:secret@y",
            "etcd://x:secret@y",
            "memory:x",
        ] {
            let error = open(url).await.unwrap_err();
            assert!(error.is_invalid(), "{url}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[tokio::test]
    async fn hint_for_unknown_scheme_names_all_schemes_and_dialects() {
        let message = open("ftp://host").await.unwrap_err().to_string();
        for scheme in [
            "memory:",
            "file:",
            "redis://",
            "rediss://",
            "redis+unix://",
            "redlock://",
            "redlocks://",
        ] {
            assert!(message.contains(scheme), "{scheme}: {message}");
        }
        for rest in [
            "zookeeper://",
            "zookeeper+tls://",
            "dialect=plain",
            "dialect=redisson",
            "dialect=classic",
            "dialect=kazoo",
        ] {
            assert!(message.contains(rest), "{rest}: {message}");
        }
    }
}
