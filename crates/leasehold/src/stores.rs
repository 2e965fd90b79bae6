//! The places where locks can be kept, one type each: the only code that knows a service.

#[cfg(feature = "redis")]
mod local_claims;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_client;
#[cfg(feature = "redis")]
mod redis_examination;
#[cfg(feature = "redis")]
mod redis_kinds;
#[cfg(feature = "redis")]
mod redis_plain;
#[cfg(feature = "redis")]
mod redisson;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(all(test, feature = "redis"))]
mod test_models;
#[cfg(feature = "redis")]
mod votes;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use leasehold_core::stores::Memory;
#[cfg(feature = "file")]
pub use leasehold_core::stores::{File, FileBuilder};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisBuilder};
#[cfg(feature = "redis")]
pub(crate) use redis_kinds::{REDIS, REDLOCK};
#[cfg(feature = "redis")]
pub use redis_plain::{RedisPlain, RedisPlainBuilder};
#[cfg(feature = "redis")]
pub use redisson::{Redisson, RedissonBuilder};
#[cfg(feature = "redis")]
pub use redlock::{Redlock, RedlockBuilder};
#[cfg(feature = "zookeeper")]
pub(crate) use zookeeper::ZOOKEEPER;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
