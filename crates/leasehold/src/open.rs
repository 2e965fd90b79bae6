//! Opening a store by its URL.

mod examine;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

pub use examine::examine;

use leasehold_core::internal::{LazyStore, Setting, UnopenedStore, check_characters};
use leasehold_core::store::Store;

use crate::schemes::Entry;
use crate::shown_url::{names_user, redacted};
use crate::{Error, Lock, Locks, Result, unknown_url};

/// Opens the store of a URL. [The first page](crate#urls) lists all URLs.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// # assert_eq!(locks.url(), "memory:");
/// # Ok(()) }
/// ```
///
/// Open each store once, and clone the [`Locks`]: every open store has connections and files of its
/// own, about 4 descriptors on Redis and 6 on files.
///
/// # Errors
/// [`is_invalid`](Error::is_invalid) for an invalid URL, [`is_unsupported`](Error::is_unsupported)
/// for a store whose feature this build lacks, and the errors of connecting to the store.
///
/// # Cancel safety
/// Dropping the future closes every connection.
#[doc(alias = "connect")]
pub async fn open(url: &str) -> Result<Locks> {
    open_on(url, Handle::try_current().ok()).await
}

/// Opens as [`open`]. If `runtime` is given, it drives connections in addition to those of the
/// background thread.
pub(crate) async fn open_on(url: &str, runtime: Option<Handle>) -> Result<Locks> {
    let opening = async {
        let (unopened, reply_timeout) = prepare(url)?;
        let store = unopened.open(runtime).await?;
        locks(store, &unopened.shown_url, reply_timeout)
    };
    let opened = opening.await;
    opened.map_err(|error| error.during("open the store", &redacted(url), None))
}

/// Opens as [`open`], but connects to the store at the first request, so that a service starts
/// while its store is down.
///
/// A URL that is invalid is refused at once, and so is a store without a server that cannot be
/// opened. [`Locks::guarantees`] and [`Locks::require`] need no connection either.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open_lazy("memory:")?;
/// locks.require([leasehold::Need::Tokens])?;
/// let guard = locks.mutex("orders/42").acquire().await?;
/// # drop(guard); Ok(()) }
/// ```
///
/// While the store has never been open, each request tries to connect, and fails with the errors of
/// [`open`]: at once if nothing listens at the address, even an acquire without a time limit.
/// Requests at the same time share one attempt. After the first connection, the store reconnects by
/// itself.
///
/// # Errors
/// As [`open`], without those of connecting to a server.
pub fn open_lazy(url: &str) -> Result<Locks> {
    open_lazy_on(url, Handle::try_current().ok())
}

pub(crate) fn open_lazy_on(url: &str, runtime: Option<Handle>) -> Result<Locks> {
    let opened = prepare(url).and_then(|(unopened, reply_timeout)| {
        let shown_url = unopened.shown_url.clone();
        let store = match &unopened.opened {
            Some(store) => Arc::clone(store),
            None => Arc::new(LazyStore::new(unopened, runtime)),
        };
        locks(store, &shown_url, reply_timeout)
    });
    opened.map_err(|error| error.during("open the store", &redacted(url), None))
}

/// Opens as [`open`], and enters the claim of a lock meanwhile, if the store can do so. The next
/// acquire of an equal lock with the same limit takes it.
///
/// # Errors
/// As [`open`] and the acquire. The claim has left, unless the server does not reply.
///
/// # Cancel safety
/// As that of the acquire.
#[doc(hidden)]
pub async fn open_entering(
    url: &str,
    lock: impl FnOnce(&Locks) -> Lock,
    limit: Option<Duration>,
) -> Result<Locks> {
    let opening = async {
        let (unopened, reply_timeout) = prepare(url)?;
        let runtime = Handle::try_current().ok();
        let shown_url = unopened.shown_url.clone();
        if unopened.enters.is_none() {
            return locks(unopened.open(runtime).await?, &shown_url, reply_timeout);
        }

        let store = Arc::new(LazyStore::new(unopened, runtime).entering());
        let opened = locks(Arc::clone(&store) as _, &shown_url, reply_timeout)?;
        let lock = lock(&opened);
        let entered = lock.enter_first(limit).await;
        match entered {
            Ok(()) => Ok(opened),
            Err(error) if store.is_open() => {
                Err(error.during("acquire", &shown_url, Some(lock.name())))
            }
            Err(error) => Err(error),
        }
    };
    let opened = opening.await;
    opened.map_err(|error| error.during("open the store", &redacted(url), None))
}

fn locks(store: Arc<dyn Store>, shown_url: &str, reply_timeout: Option<Duration>) -> Result<Locks> {
    let locks = Locks::from_arc(store, shown_url)?;
    match reply_timeout {
        Some(reply_timeout) => locks.reply_timeout(reply_timeout),
        None => Ok(locks),
    }
}

/// Splits a URL into that of its store, and the reply timeout.
fn split_reply_timeout(url: &str) -> Result<(String, Option<Duration>)> {
    let value = |setting: &str| {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        (name == Setting::REPLY_TIMEOUT.name).then(|| value.to_owned())
    };
    let (location, settings) = url.split_once('?').unwrap_or((url, ""));
    let stated = settings.split('&').filter_map(value);
    let parsed = stated.map(|value| Setting::REPLY_TIMEOUT.parse_duration(&value));
    let Some(reply_timeout) = parsed.collect::<Result<Vec<_>>>()?.pop() else {
        return Ok((url.to_owned(), None));
    };

    let settings = settings.split('&');
    let others: Vec<&str> = settings
        .filter(|setting| value(setting).is_none())
        .collect();
    let store_url = format!("{location}?{}", others.join("&"));
    let store_url = store_url.trim_end_matches('?').to_owned();
    Ok((store_url, Some(reply_timeout)))
}

/// Parses a URL: returns its store, and the reply timeout.
fn prepare(url: &str) -> Result<(UnopenedStore, Option<Duration>)> {
    check_characters(url)?;
    let unknown = || unknown_url::error(url);
    let (name, rest) = url.split_once(':').ok_or_else(unknown)?;
    let entry = Entry::of_scheme(name).ok_or_else(unknown)?;
    if entry.is_local() && names_user(name, rest) {
        let error = Error::invalid(format!("{name}: has no user and no password"));
        return Err(
            error.help("write file:/some/folder, or the scheme of a server, as redis://host")
        );
    }

    let (store_url, reply_timeout) = split_reply_timeout(url)?;
    let unopened = entry.prepare(&store_url)?;
    Ok((unopened, reply_timeout))
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
    async fn wrong_reply_timeouts_are_refused_with_a_value_to_write() {
        for settings in [
            "reply-timeout",
            "reply-timeout=",
            "reply-timeout=zz&reply-timeout=1s",
        ] {
            let error = open(&format!("memory:?{settings}")).await.unwrap_err();
            assert!(error.is_invalid(), "{settings}: {error}");
            let help = error.hint().unwrap_or_default();
            assert!(help.contains("reply-timeout=2s"), "{settings}: {error}");
        }
    }
}
