//! The places where locks can be kept, one type each.

pub use leasehold_core::stores::Memory;
#[cfg(feature = "file")]
pub use leasehold_core::stores::{File, FileBuilder};
#[cfg(feature = "redis")]
pub use leasehold_redis::{
    Redis, RedisBuilder, RedisPlain, RedisPlainBuilder, Redisson, RedissonBuilder, Redlock,
    RedlockBuilder,
};
#[cfg(feature = "zookeeper")]
pub use leasehold_zookeeper::{ZooKeeper, ZooKeeperBuilder};
