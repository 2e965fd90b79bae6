//! The kinds of stores on Redis servers, for the table of schemes of `leasehold`.

use futures_util::FutureExt;
use leasehold_core::internal::{StoreKind, UnopenedStore};
use leasehold_core::{Examination, Result};

use crate::{Redis, RedisPlain, Redisson, Redlock};

/// Returns the store of a builder, unopened.
macro_rules! unopened {
    ($builder:expr) => {{
        let builder = $builder;
        UnopenedStore::new(builder.url(), builder.guarantees(), move |runtime| {
            builder.clone().connect_on(runtime)
        })
    }};
}
/// The stores on one Redis server, on the master of sentinels, and on a Redis Cluster.
pub const REDIS: StoreKind = StoreKind {
    examine: |url| examine_redis(url).boxed(),
    ..StoreKind::new(prepare_redis)
};

/// The stores on several Redis servers.
pub const REDLOCK: StoreKind = StoreKind {
    examine: |url| async { Redlock::builder(url)?.examine().await }.boxed(),
    ..StoreKind::new(|url| Ok(unopened!(Redlock::builder(url)?)))
};

fn prepare_redis(url: &str) -> Result<UnopenedStore> {
    Ok(match dialect(url) {
        None => unopened!(Redis::builder(url)?),
        Some("redisson") => unopened!(Redisson::builder(url)?),
        Some(_) => unopened!(RedisPlain::builder(url)?),
    })
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
