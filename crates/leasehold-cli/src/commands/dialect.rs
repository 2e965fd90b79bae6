//! The option `--dialect`: whose locks on a server a command looks at.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use leasehold::{Dialect, Error, LockState, Locks, Result, kind_of, kinds};

use super::store::Store;

/// A store, with the locks of one library.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreInDialect {
    #[command(flatten)]
    pub(crate) store: Store,

    /// Use the locks of another library on the server of the store
    #[arg(long, value_name = "LIBRARY", value_parser = libraries())]
    dialect: Option<&'static Dialect>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct InspectedStore {
    #[command(flatten)]
    pub(crate) own: StoreInDialect,

    /// Use the locks of all known libraries on the server of the store
    ///
    /// A store whose server may have locks of other libraries.
    #[arg(long, conflicts_with = "dialect")]
    all: bool,
}

/// The locks of one library on the server of a store.
pub(crate) struct Inspected {
    /// The value of --dialect, or `leasehold`.
    pub(crate) format: &'static str,
    pub(crate) locks: Locks,
}

impl StoreInDialect {
    pub(crate) async fn open(&self) -> Result<Locks> {
        match self.dialect {
            Some(dialect) => self.at(in_dialect(&self.store.url, dialect)?).open().await,
            None => self.store.open().await,
        }
    }

    /// Returns the store with the URL of another dialect.
    fn at(&self, url: String) -> Store {
        let origin = self.store.origin;
        Store { url, origin }
    }
}

impl InspectedStore {
    /// Opens the store, and with --all the same server for the locks of each other library.
    pub(crate) async fn open_all(&self) -> Result<Vec<Inspected>> {
        let own = Inspected {
            format: self.own.dialect.map_or("leasehold", |dialect| dialect.name),
            locks: self.own.open().await?,
        };
        let mut opened = vec![own];
        if !self.all {
            return Ok(opened);
        }

        for (dialect, url) in others(&self.own.store.url)? {
            opened.push(Inspected {
                format: dialect.name,
                locks: self.own.at(url).open().await?,
            });
        }
        Ok(opened)
    }

    /// Names the store, and where its URL comes from.
    pub(crate) fn describe(&self, opened: &[Inspected]) -> String {
        let url = opened.first().map_or("", |inspected| inspected.locks.url());
        self.own.store.origin.describe(url)
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

/// The values of --dialect.
fn libraries() -> impl TypedValueParser<Value = &'static Dialect> {
    let value = |dialect: &Dialect| PossibleValue::new(dialect.name).help(dialect.help);
    PossibleValuesParser::new(dialects().map(value)).map(|name| named(&name))
}

fn dialects() -> impl Iterator<Item = &'static Dialect> {
    kinds().flat_map(|kind| kind.dialects)
}

fn named(name: &str) -> &'static Dialect {
    let mut dialects = dialects();
    let dialect = dialects.find(|dialect| dialect.name == name);
    dialect.expect("the parser refuses other names")
}

/// Returns the URL with a dialect in place of its own.
///
/// # Errors
/// Invalid if the service of the URL has no such locks.
fn in_dialect(url: &str, dialect: &'static Dialect) -> Result<String> {
    let kind = kind_of(url).filter(|kind| kind.dialects_of(url).any(|other| other == dialect));
    let Some(kind) = kind else {
        let error = Error::invalid("the store does not have locks of this library");
        return Err(error.help("`leasehold ls --help` names the service of each library"));
    };
    Ok(kind.in_dialect(url, dialect))
}

/// Returns the other dialects of the service of a URL, each with its URL.
fn others(url: &str) -> Result<Vec<(&'static Dialect, String)>> {
    let kind = kind_of(url).filter(|kind| kind.dialects_of(url).next().is_some());
    let Some(kind) = kind else {
        let error = Error::unsupported("the store has no locks of other libraries for --all");
        return Err(error.help("leave it out"));
    };

    let own = kind.dialect_of(url);
    let others = kind.dialects_of(url).filter(|dialect| own != Some(dialect));
    let with_url = |dialect| (dialect, kind.in_dialect(url, dialect));
    Ok(others.map(with_url).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G-56.
    #[test]
    fn dialect_replaces_the_settings_of_the_format() {
        for (url, dialect, expected) in [
            ("redis://a", "redisson", "redis://a?dialect=redisson"),
            (
                "rediss://a?ca=/x&crash-grace=5s&server-name=b",
                "plain",
                "rediss://a?ca=/x&server-name=b&dialect=plain",
            ),
            (
                "redis://a?dialect=redisson&lock=fenced&prefix=b",
                "redisson",
                "redis://a?dialect=redisson&lock=fenced&prefix=b",
            ),
            (
                "redis://a?dialect=redisson&lock=rw&prefix=b",
                "redisson",
                "redis://a?prefix=b&dialect=redisson",
            ),
            (
                "redis://a?lock=rw&prefix=b&dialect=redisson",
                "redisson-semaphore",
                "redis://a?prefix=b&dialect=redisson&lock=semaphore",
            ),
            (
                "redis://a?dialect=redisson&lock=fenced&prefix=b",
                "plain",
                "redis://a?dialect=plain",
            ),
            (
                "redis+sentinel://a/b?sentinel-user=c&replicas=1",
                "redisson",
                "redis+sentinel://a/b?sentinel-user=c&dialect=redisson",
            ),
            (
                "zookeeper://a/b?dialect=kazoo&session=30s",
                "curator",
                "zookeeper://a/b?session=30s",
            ),
            ("zookeeper://a/b", "curator", "zookeeper://a/b"),
            (
                "redlock://a,b,c?quarantine=off&longest-lease=5s",
                "classic",
                "redlock://a,b,c?longest-lease=5s&dialect=classic",
            ),
        ] {
            let replaced = in_dialect(url, named(dialect));
            assert_eq!(replaced.as_deref().ok(), Some(expected), "{url}");
        }
    }

    #[test]
    fn dialect_of_another_service_is_refused() {
        for (url, dialect) in [
            ("file:/a", "redisson"),
            ("redis://me:secret@a", "kazoo"),
            ("redlock://a,b,c", "plain"),
        ] {
            let error = in_dialect(url, named(dialect)).expect_err(url);
            assert!(error.is_invalid());
            assert!(!error.to_string().contains("secret"));
        }
    }
}
