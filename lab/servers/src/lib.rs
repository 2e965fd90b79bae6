//! Real services on free loopback ports, and a proxy that injects network faults, for tests and
//! benchmarks.
//!
//! [`Redis`] and [`ZooKeeper`] are real servers. A test can kill, pause and restart them, and they
//! keep their address. An [`Ensemble`] is three ZooKeeper servers, a [`Postgres`] is a database, and
//! a [`PgBouncer`] a pool of connections to it. [`Sentinels`] move the role of a Redis master between three servers, and a [`Cluster`]
//! divides the keys among three masters. A test can set the wall clock of a server through a
//! [`Clock`]. A [`Wire`] is a proxy in front of any service: it delays, cuts or loses the bytes
//! that pass. This crate does not depend on leasehold, so that leasehold's own tests can use it.
//!
//! A function that cannot do its work panics, and the message says what is missing. A test could
//! not handle an error in a better way.
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
mod pgbouncer;
mod port;
mod postgres;
mod redis;
mod wait;
mod wire;
mod zookeeper;

pub use certificates::Certificates;
pub use clock::Clock;
pub use pgbouncer::PgBouncer;
pub use postgres::{Postgres, PostgresSession};
pub use redis::{Cluster, Raw, Redis, Release, Reply, Sentinels, Setup, request};
pub use wait::{DEADLINE, until, until_within};
pub use wire::{Traffic, Wire};
pub use zookeeper::{Ensemble, ZooKeeper, ZooKeeperRelease, ZooKeeperSetup};
