//! Behaviour of the ZooKeeper store alone, on real servers.
#![cfg(feature = "zookeeper")]
#![allow(missing_docs)]

mod behaviour;
mod downgrade;
mod errors;
mod generations;
mod hostile;
mod password;
mod records;
mod rights;
mod single_server;
#[cfg(feature = "tls")]
mod tls;

use std::fmt::Debug;
use std::sync::LazyLock;
use std::time::Duration;

use lab_servers::ZooKeeper;
use leasehold::{Guard, Locks, Token, stores};
use leasehold_conformance::support::{claim, empty, waiters};
use zookeeper_client::Client;

/// How long a test waits for an event that must happen.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The server of all tests that neither stop nor change their server.
static SERVER: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::setup().tick(500).tls().start());

async fn open(url: &str) -> Locks {
    leasehold::open(url).await.expect("it opens")
}

/// Opens the folder of one test on the shared server.
async fn open_folder(folder: &str) -> Locks {
    open(&format!("{}/{folder}", SERVER.url())).await
}

async fn connect_store(url: &str) -> stores::ZooKeeper {
    let builder = stores::ZooKeeper::builder(url).expect("a URL");
    builder.connect().await.expect("it connects")
}

/// Connects a client that is not leasehold's. Its paths start at the root.
async fn plain_client(server: &ZooKeeper) -> Client {
    let connected = Client::connect(&server.address()).await;
    connected.expect("it connects")
}

async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

async fn held_for(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

/// Acquires and releases a lock. Afterwards its node exists and is empty.
async fn use_once(locks: &Locks, name: &str) -> Token {
    let held = locks.mutex(name).acquire().await.expect("granted");
    let token = held.token();
    held.release().await.expect("released");
    token
}

/// Whether a mutex is granted at once. The hold is dropped.
async fn is_free(locks: &Locks, name: &str) -> bool {
    let granted = locks.mutex(name).try_acquire().await;
    granted.expect("tried").is_ok()
}
