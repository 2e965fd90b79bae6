//! Real services on free loopback ports, and a wire that can fail, for tests and benchmarks.
//!
//! A [`Redis`] and a [`ZooKeeper`] are real servers that can be killed, stopped and started again at the same place, an
//! [`Ensemble`] is three of the latter, a [`Postgres`] a database; a [`Wire`] stands before any service and delays, cuts or loses what passes. Nothing here knows leasehold, so that its own tests can use it.
//!
//! What cannot be done is a panic that says what is missing: a test has nothing better to do with it.
//!
//! ```
//! use lab_servers::Redis;
//!
//! let mut redis = Redis::setup().append_only("always").start();
//! redis.command(&["SET", "name", "7"]);
//! redis.kill();
//! redis.restart();
//! assert_eq!(redis.command(&["GET", "name"]).text(), "7");
//! ```
#![forbid(unsafe_code)]

mod certificates;
mod child;
mod clock;
mod port;
mod postgres;
mod redis;
mod wait;
mod wire;
mod zookeeper;

pub use postgres::{Postgres, PostgresSession};
pub use redis::{Raw, Redis, Release, Reply, Setup, request};
pub use wait::{DEADLINE, until, until_within};
pub use wire::{Traffic, Wire};
pub use zookeeper::{Ensemble, ZooKeeper, ZooKeeperRelease, ZooKeeperSetup};
