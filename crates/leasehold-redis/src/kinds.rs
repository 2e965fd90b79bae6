//! The kinds of stores on Redis servers.

use std::sync::Arc;

use leasehold_core::internal::{Dialect, StoreKind, UnopenedStore};

use crate::client::{CLUSTER_URL, SENTINEL_URL, SINGLE_URL, Topology};
use crate::queue::Opener;
use crate::redisson::address;
use crate::votes::{plain, redlock};
use crate::{Redis, RedisBuilder, RedisPlain, Redisson, Redlock};

/// The stores on one Redis server, on the master of sentinels, and on a Redis Cluster.
pub static REDIS: StoreKind = StoreKind {
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
    aliases: &[
        ("sentinel", SENTINEL),
        ("redis-sentinel", SENTINEL),
        ("redis-cluster", "write redis+cluster://host1,host2,host3"),
        ("redis+tls", "write rediss://host"),
        ("redis+ssl", "write rediss://host"),
        ("redis-socket", "write redis+unix:///path/of/the.sock"),
        (
            "unix",
            "write redis+unix:///path/of/the.sock for the socket of a Redis server",
        ),
        (
            "valkey",
            "write redis://host: Valkey uses the protocol of Redis",
        ),
        (
            "valkeys",
            "write rediss://host: Valkey uses the protocol of Redis",
        ),
    ],
    dialects: &[
        Dialect {
            name: "redisson",
            help: "Redisson on Redis: RLock, RFencedLock and RFairLock",
            settings: "dialect=redisson",
        },
        Dialect {
            name: "redisson-rw",
            help: "RReadWriteLock of Redisson on Redis",
            settings: "dialect=redisson&lock=rw",
        },
        Dialect {
            name: "redisson-semaphore",
            help: "RPermitExpirableSemaphore of Redisson on Redis",
            settings: "dialect=redisson&lock=semaphore",
        },
        Dialect {
            name: "plain",
            help: "redis-py and others on Redis, whose locks are strings",
            settings: "dialect=plain",
        },
    ],
    ..StoreKind::new(
        &[
            &SINGLE_URL,
            &SENTINEL_URL,
            &CLUSTER_URL,
            &plain::FORM,
            &address::FORM,
            &address::SENTINEL_FORM,
        ],
        |url| {
            Ok(match dialect(url) {
                None => unopened(Redis::builder(url)?),
                Some("redisson") => Redisson::builder(url)?.unopened(),
                Some(_) => RedisPlain::builder(url)?.unopened(),
            })
        },
    )
};
/// The store of one server at a time enters its first claim while it is opened.
fn unopened(builder: RedisBuilder) -> UnopenedStore {
    let topology = builder.address.clone();
    let mut unopened = builder.unopened();
    if !matches!(topology, Topology::Cluster(_)) {
        unopened.enters = Some(Arc::new(Opener(topology)));
    }
    unopened
}

const SENTINEL: &str = "write redis+sentinel://host1,host2,host3/mymaster";

/// The stores on several Redis servers.
pub static REDLOCK: StoreKind = StoreKind {
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
    aliases: &[("redlock+tls", "write redlocks://host1,host2,host3")],
    dialects: &[Dialect {
        name: "classic",
        help: "redsync and others on several Redis masters",
        settings: "dialect=classic",
    }],
    ..StoreKind::new(&[&redlock::FORM], |url| {
        Ok(Redlock::builder(url)?.unopened())
    })
};

/// Returns the library whose format the URL selects.
fn dialect(url: &str) -> Option<&str> {
    let (_, settings) = url.split_once('?')?;
    let mut settings = settings.split('&');
    settings.find_map(|setting| setting.strip_prefix("dialect="))
}
