//! The errors of waiters whose store cannot be reached: the same on every network store.

// The tests wait for silent servers for nearly all of their time.
// xtask: threads 24

#![cfg(all(feature = "postgres", feature = "redis", feature = "zookeeper"))]
#![allow(missing_docs, clippy::wildcard_imports)]

mod bounds;
mod lazy;
#[path = "../shared/outages.rs"]
mod outages;

use std::time::Duration;

use futures_util::future::join_all;
use lab_servers::{Postgres, Redis, ZooKeeper};
use leasehold::{Locks, Owner, Result};
use tokio::time::{Instant, sleep};

use outages::*;

struct OneZooKeeper(ZooKeeper);

impl Servers for OneZooKeeper {
    fn url(&self) -> String {
        self.0.url()
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn pause(&self) {
        self.0.pause();
    }

    fn resume(&self) {
        self.0.resume();
    }
}

struct OnePostgres(Postgres);

impl Servers for OnePostgres {
    fn url(&self) -> String {
        self.0.url()
    }

    fn kill(&mut self) {
        self.0.stop();
    }

    fn pause(&self) {
        self.0.pause();
    }

    fn resume(&self) {
        self.0.resume();
    }
}

/// Shows G-26.
#[tokio::test]
async fn postgres_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(OnePostgres(Postgres::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn postgres_deadline_without_server_is_unavailable() {
    deadline_without_store_is_unavailable(OnePostgres(Postgres::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn postgres_tries_without_reply_are_unavailable() {
    tries_without_reply_are_unavailable(OnePostgres(Postgres::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn postgres_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(OnePostgres(Postgres::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn zookeeper_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(OneZooKeeper(ZooKeeper::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn zookeeper_deadline_without_server_is_unavailable() {
    deadline_without_store_is_unavailable(OneZooKeeper(ZooKeeper::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn zookeeper_tries_without_reply_are_unavailable() {
    tries_without_reply_are_unavailable(OneZooKeeper(ZooKeeper::start())).await;
}

/// Shows G-26.
#[tokio::test]
async fn zookeeper_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(OneZooKeeper(ZooKeeper::start())).await;
}
