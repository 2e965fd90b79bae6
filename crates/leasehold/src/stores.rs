//! The places where locks can be kept, one module each: the only code that knows a service.

#[cfg(feature = "file")]
mod file;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod settings;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "zookeeper")))]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "file")]
pub use file::{File, FileBuilder};
pub use memory::Memory;
#[cfg(feature = "redis")]
pub(crate) use redis::claim_state;
#[cfg(feature = "redis")]
pub use redis::redlock::{Redlock, RedlockBuilder, voting as redlock};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisBuilder};
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
