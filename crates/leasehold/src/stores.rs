//! The places where locks can be kept, one module each: the only code that knows a service.

#[cfg(feature = "file")]
mod file;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_client;
#[cfg(feature = "redis")]
pub(crate) mod redlock;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod settings;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "zookeeper")))]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "file")]
pub use file::{File, FileBuilder};
#[cfg(feature = "file")]
pub(crate) use file::{Locality, check_local};
pub use memory::Memory;
#[cfg(feature = "redis")]
pub(crate) use redis::claim_state;
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisBuilder};
#[cfg(feature = "redis")]
pub use redlock::{Redlock, RedlockBuilder};
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
