//! Every store of this crate × every suite.
#![cfg(all(
    feature = "conformance",
    feature = "file",
    feature = "redis",
    feature = "zookeeper"
))]
#![allow(missing_docs, clippy::wildcard_imports)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock};

use async_trait::async_trait;
use lab_servers::{Redis, Release, ZooKeeper};
use leasehold::conformance::{FACED, LockKind, PLAIN, Service};
use leasehold::store::Store;
use leasehold::{Result, stores};

struct Memory(stores::Memory);

#[async_trait]
impl Service for Memory {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// One folder, opened anew by every client, as other processes would.
struct Folder(PathBuf);

impl Folder {
    fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder").keep())
    }
}

#[async_trait]
impl Service for Folder {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(stores::File::at(&self.0)?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays in the temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of its own, and every client a connection of its own.
struct Server {
    redis: Redis,
    url: String,
}

impl Server {
    fn of(release: Release) -> Self {
        let redis = Redis::setup().release(release).start();
        Self {
            url: redis.url(),
            redis,
        }
    }

    /// By its socket, and with nothing that RESP2 does not have.
    fn resp2() -> Self {
        let redis = Redis::start();
        Self {
            url: format!("redis+unix://{}?protocol=2", redis.socket_path().display()),
            redis,
        }
    }

    /// A crash frees a lock when its lease ends.
    fn without_crash_detection() -> Self {
        let redis = Redis::start();
        Self {
            url: format!("{}?crash-grace=off", redis.url()),
            redis,
        }
    }
}

#[async_trait]
impl Service for Server {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redis::builder(&self.url)?.connect().await?,
        ))
    }
}

/// What no test has anything left to do with goes by itself: all keys have an end.
impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check_ends(&self.redis);
        }
    }
}

fn check_ends(redis: &Redis) {
    for key in redis.command(&["KEYS", "*"]).texts() {
        assert_ne!(redis.command(&["PTTL", key]).int(), -1, "{key} has no end");
    }
}

mod redis {
    use super::*;
    leasehold::conformance_tests!(Server::of(Release::Installed));
}

mod redis_6_2 {
    use super::*;
    leasehold::conformance_tests!(Server::of(Release::Redis62));
}

mod valkey {
    use super::*;
    leasehold::conformance_tests!(Server::of(Release::Valkey9));
}

mod redis_resp2 {
    use super::*;
    leasehold::conformance_tests!(Server::resp2());
}

mod redis_without_crash_detection {
    use super::*;
    leasehold::conformance_tests!(Server::without_crash_detection());
}

/// Five servers for all tests: each is fresh by its name.
struct Masters {
    url: String,
}

impl Masters {
    fn start(settings: &str) -> Self {
        let hosts: Vec<String> = five().iter().map(Redis::address).collect();
        Self {
            url: format!("redlock://{}?{settings}", hosts.join(",")),
        }
    }
}

fn five() -> &'static [Redis; 5] {
    static FIVE: OnceLock<[Redis; 5]> = OnceLock::new();
    FIVE.get_or_init(|| std::array::from_fn(|_| Redis::start()))
}

#[async_trait]
impl Service for Masters {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redlock::builder(&self.url)?.connect().await?,
        ))
    }
}

impl Drop for Masters {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            five().iter().for_each(check_ends);
        }
    }
}

/// One server, with the format of other libraries.
struct Plain {
    redis: Redis,
    url: String,
}

impl Plain {
    /// On a server that tells of these events.
    fn with(settings: &str, events: &str) -> Self {
        let redis = Redis::configured(&[("notify-keyspace-events", events)]);
        Self {
            url: format!("{}?dialect=plain{settings}", redis.url()),
            redis,
        }
    }
}

#[async_trait]
impl Service for Plain {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(
            stores::Redlock::builder(&self.url)?.connect().await?,
        ))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check_ends(&self.redis);
        }
    }
}

mod plain {
    use super::*;
    leasehold::conformance_tests!(Plain::with("", "\"\""));
}

mod plain_counted {
    use super::*;
    leasehold::conformance_tests!(Plain::with("&tokens=on&protocol=2", "Kgx"));
}

// What becomes of masters that forget is shown in the lab.
mod redlock {
    use super::*;
    leasehold::conformance_tests!(Masters::start("quarantine=off"));
}

mod redlock_classic {
    use super::*;
    leasehold::conformance_tests!(Masters::start("dialect=classic"));
}

/// One server for all, as it takes a while to start, and every client a session of its own.
struct Tree(&'static str);

static TREE: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::setup().tick(1_000).start());

#[async_trait]
impl Service for Tree {
    async fn connect(&self) -> Result<Arc<dyn Store>> {
        let url = format!("{}{}", TREE.url(), self.0);
        Ok(Arc::new(stores::ZooKeeper::builder(&url)?.connect().await?))
    }
}

mod zookeeper {
    use super::*;
    leasehold::conformance_tests!(Tree("/curator"));
}

mod zookeeper_kazoo {
    use super::*;
    leasehold::conformance_tests!(Tree("/kazoo?dialect=kazoo"));
}

mod memory {
    use super::*;
    leasehold::conformance_tests!(Memory(stores::Memory::new()));
}

mod file {
    use super::*;
    leasehold::conformance_tests!(Folder::fresh());
}

/// Fails when a store × suite pair has no test.
#[test]
fn every_store_runs_every_suite() {
    let this_program = std::env::current_exe().expect("a running program has a file");
    let listed = std::process::Command::new(this_program)
        .args(["--list", "--format", "terse"])
        .output()
        .expect("it runs");
    let listed = String::from_utf8(listed.stdout).expect("test names are text");
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    let redis = [
        "redis",
        "redis_6_2",
        "valkey",
        "redis_old_fashioned",
        "redis_unjudged",
    ];
    let redlock = ["plain", "plain_counted", "redlock", "redlock_classic"];
    let zookeeper = ["zookeeper", "zookeeper_kazoo"];
    for store in ["memory", "file"]
        .into_iter()
        .chain(redis)
        .chain(redlock)
        .chain(zookeeper)
    {
        let faced = FACED
            .iter()
            .flat_map(|suite| LockKind::ALL.map(|(face, _)| format!("{store}::{suite}::{face}")));
        let plain = PLAIN.iter().map(|suite| format!("{store}::{suite}"));
        for pair in faced.chain(plain) {
            assert!(listed.contains(&*pair), "{pair} is not tested");
        }
    }
}
