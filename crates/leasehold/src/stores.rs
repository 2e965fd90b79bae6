//! The places where locks can be kept, one module each: the only code that knows a service.

#[cfg(feature = "file")]
mod file;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "zookeeper")))]
mod tls;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod words;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "file")]
pub use file::{File, FileBuilder};
#[cfg(feature = "file")]
pub(crate) use file::{Locality, check_local};
pub use memory::Memory;
#[cfg(feature = "redis")]
pub(crate) use redis::belief;
#[cfg(feature = "redis")]
pub use redis::redlock::{Redlock, RedlockAt, rule as redlock};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisAt};
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeper, ZooKeeperAt};
