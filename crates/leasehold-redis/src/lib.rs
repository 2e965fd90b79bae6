//! The stores of [leasehold](https://docs.rs/leasehold) on Redis servers: only the crate
//! `leasehold` follows semantic versioning, and a program names nothing of this one.

// The models of the unit tests compute all the time, and more of them would only wait for a core.
// xtask: busy
// xtask: threads 2

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod client;
mod examination;
mod kinds;
mod local_claims;
mod queue;
mod redisson;
#[cfg(test)]
#[path = "../../leasehold-core/src/test_inputs.rs"]
mod test_inputs;
#[cfg(test)]
mod test_models;
#[cfg(test)]
mod test_scripts;
mod votes;

pub use builder::StoreBuilder;
#[doc(hidden)]
pub use kinds::{REDIS, REDLOCK};
pub use queue::{Redis, RedisBuilder};
pub use redisson::{Redisson, RedissonBuilder};
pub use votes::plain::{RedisPlain, RedisPlainBuilder};
pub use votes::redlock::{Redlock, RedlockBuilder};
