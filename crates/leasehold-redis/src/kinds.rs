//! The kinds of stores on Redis servers, for the table of schemes of `leasehold`.

use futures_util::FutureExt;
use leasehold_core::internal::{OpenedStore, StoreKind};
use leasehold_core::{Examination, Result};
use tokio::runtime::Handle;

use crate::{Redis, RedisPlain, Redisson, Redlock};

/// The stores on one Redis server, on the master of sentinels, and on a Redis Cluster.
pub const REDIS: StoreKind = StoreKind {
    examine: |url| examine_redis(url).boxed(),
    ..StoreKind::new(|url, runtime| open_redis(url, runtime).boxed())
};

/// The stores on several Redis servers.
pub const REDLOCK: StoreKind = StoreKind {
    examine: |url| async { Redlock::builder(url)?.examine().await }.boxed(),
    ..StoreKind::new(|url, runtime| open_redlock(url, runtime).boxed())
};

async fn open_redis(url: &str, runtime: Option<Handle>) -> Result<OpenedStore> {
    match dialect(url) {
        None => {
            let builder = Redis::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
        Some("redisson") => {
            let builder = Redisson::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
        Some(_) => {
            let builder = RedisPlain::builder(url)?;
            let shown_url = builder.url();
            let store = builder.connect_on(runtime).await?;
            Ok(OpenedStore::new(store, shown_url))
        }
    }
}

async fn open_redlock(url: &str, runtime: Option<Handle>) -> Result<OpenedStore> {
    let builder = Redlock::builder(url)?;
    let shown_url = builder.url();
    let store = builder.connect_on(runtime).await?;
    Ok(OpenedStore::new(store, shown_url))
}

async fn examine_redis(url: &str) -> Result<Examination> {
    match dialect(url) {
        None => Redis::builder(url)?.examine().await,
        Some("redisson") => Redisson::builder(url)?.examine().await,
        Some(_) => RedisPlain::builder(url)?.examine().await,
    }
}

/// Returns the library whose format the URL selects.
fn dialect(url: &str) -> Option<&str> {
    let (_, settings) = url.split_once('?')?;
    let mut settings = settings.split('&');
    settings.find_map(|setting| setting.strip_prefix("dialect="))
}
