//! The places where locks can be kept, one module each: the only code that knows a service.

#[cfg(feature = "file")]
mod file;
#[cfg(feature = "redis")]
mod local_claims;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_client;
#[cfg(feature = "redis")]
mod redis_examination;
#[cfg(feature = "redis")]
mod redis_plain;
#[cfg(feature = "redis")]
mod redisson;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(all(test, feature = "redis"))]
mod test_models;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "zookeeper")))]
mod tls;
#[cfg(any(feature = "file", feature = "redis", feature = "zookeeper"))]
#[cfg_attr(
    not(all(
        feature = "file",
        feature = "redis",
        feature = "tls",
        feature = "zookeeper"
    )),
    allow(
        dead_code,
        unused_imports,
        reason = "a store needs a part of the parser"
    )
)]
mod url;
#[cfg(feature = "redis")]
mod votes;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(feature = "file")]
pub(crate) use file::examine as examine_folder;
#[cfg(feature = "file")]
pub use file::{File, FileBuilder};
pub use memory::Memory;
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisBuilder};
#[cfg(feature = "redis")]
pub use redis_plain::{RedisPlain, RedisPlainBuilder};
#[cfg(feature = "redis")]
pub use redisson::{Redisson, RedissonBuilder};
#[cfg(feature = "redis")]
pub use redlock::{Redlock, RedlockBuilder};
#[cfg(feature = "zookeeper")]
pub(crate) use zookeeper::examine as examine_zookeeper;
#[cfg(feature = "zookeeper")]
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};
