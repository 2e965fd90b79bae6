//! What a waiter receives when its store cannot be reached: the same on every store that is not on this machine.
#![cfg(all(feature = "redis", feature = "zookeeper"))]
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lab_servers::{Redis, ZooKeeper};
use leasehold::{Error, Guard, Locks, Result};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Without a reply for as long, a store is unavailable.
const OUTAGE_MAX: Duration = Duration::from_secs(10);
/// What it may take to notice the first missing reply, and what a busy machine adds.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(60);

/// Servers that keep one store.
trait Servers {
    fn url(&self) -> String;
    fn kill(&mut self);
    fn pause(&self);
    fn resume(&self);
}

struct OneRedis(Redis);

impl Servers for OneRedis {
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

struct FiveMasters(Vec<Redis>);

impl FiveMasters {
    fn start() -> Self {
        Self((0..5).map(|_| Redis::start()).collect())
    }
}

impl Servers for FiveMasters {
    fn url(&self) -> String {
        let hosts: Vec<String> = self.0.iter().map(Redis::address).collect();
        format!("redlock://{}?quarantine=off", hosts.join(","))
    }

    fn kill(&mut self) {
        self.0.iter_mut().for_each(Redis::kill);
    }

    fn pause(&self) {
        self.0.iter().for_each(Redis::pause);
    }

    fn resume(&self) {
        self.0.iter().for_each(Redis::resume);
    }
}

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

/// A lock that one client holds, and another client that wants it.
struct Fixture<S> {
    servers: S,
    held: Guard,
    locks: Locks,
}

impl<S: Servers> Fixture<S> {
    async fn begin(servers: S) -> Self {
        let (theirs, locks) = (open(&servers).await, open(&servers).await);
        let held = theirs.mutex("a").acquire().await.expect("granted");
        Self {
            servers,
            held,
            locks,
        }
    }

    /// Starts to wait, and returns when it is known to do so.
    async fn waiter(&self, wait: Option<Duration>) -> JoinHandle<Result<Option<Guard>>> {
        let waiting = self
            .locks
            .inspect("a")
            .await
            .expect("looked")
            .waiters()
            .count();
        let lock = self.locks.mutex("a");
        let waiter = tokio::spawn(async move {
            match wait {
                Some(wait) => lock.try_acquire_for(wait).await,
                None => lock.acquire().await.map(Some),
            }
        });
        let begun = Instant::now();
        while self
            .locks
            .inspect("a")
            .await
            .expect("looked")
            .waiters()
            .count()
            == waiting
        {
            assert!(begun.elapsed() < DEADLINE, "it does not wait");
            sleep(Duration::from_millis(1)).await;
        }
        waiter
    }
}

async fn open(servers: &impl Servers) -> Locks {
    leasehold::open(&servers.url()).await.expect("it opens")
}

async fn refused(waiter: JoinHandle<Result<Option<Guard>>>) -> Error {
    let ended = timeout(DEADLINE, waiter)
        .await
        .expect("it ends")
        .expect("it runs");
    let error = ended
        .map(|guard| guard.map(|guard| guard.token()))
        .expect_err("nobody grants it");
    assert!(error.is_unavailable(), "{error}");
    error
}

/// Also those who wait behind others of their own client.
async fn waiters_are_refused_after_ten_seconds(servers: impl Servers) {
    let mut fixture = Fixture::begin(servers).await;
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(fixture.waiter(None).await);
    }
    let begun = Instant::now();
    fixture.servers.kill();
    for waiter in waiters {
        let error = refused(waiter).await;
        let took = begun.elapsed();
        assert!(took >= OUTAGE_MAX, "after {took:?}: {error}");
        assert!(
            took < OUTAGE_MAX + NOTICED_WITHIN,
            "after {took:?}: {error}"
        );
    }
}

#[tokio::test]
async fn redis_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(OneRedis(Redis::start())).await;
}

#[tokio::test]
async fn redlock_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(FiveMasters::start()).await;
}

#[tokio::test]
async fn zookeeper_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(OneZooKeeper(ZooKeeper::start())).await;
}

/// The same wait finds a reachable store contended, and one that is away unavailable.
async fn deadline_without_store_is_unavailable(servers: impl Servers) {
    const WAIT: Duration = Duration::from_secs(4);
    let mut fixture = Fixture::begin(servers).await;
    let contended = fixture
        .waiter(Some(WAIT))
        .await
        .await
        .expect("it runs")
        .expect("the store is there");
    assert!(contended.is_none());

    let begun = Instant::now();
    let waiter = fixture.waiter(Some(WAIT)).await;
    fixture.servers.kill();
    let error = refused(waiter).await;
    let took = begun.elapsed();
    assert!(took >= WAIT && took < WAIT * 2, "after {took:?}: {error}");
}

#[tokio::test]
async fn redis_deadline_without_server_is_unavailable() {
    deadline_without_store_is_unavailable(OneRedis(Redis::start())).await;
}

#[tokio::test]
async fn redlock_deadline_without_masters_is_unavailable() {
    deadline_without_store_is_unavailable(FiveMasters::start()).await;
}

#[tokio::test]
async fn zookeeper_deadline_without_server_is_unavailable() {
    deadline_without_store_is_unavailable(OneZooKeeper(ZooKeeper::start())).await;
}

/// Servers that stand still for less than ten seconds cost no waiter an error.
async fn waiter_survives_short_outage(servers: impl Servers) {
    let fixture = Fixture::begin(servers).await;
    let waiters = [fixture.waiter(None).await, fixture.waiter(None).await];
    fixture.servers.pause();
    sleep(OUTAGE_MAX / 2).await;
    fixture.servers.resume();
    // By then the hold may have been lost.
    let _ = fixture.held.release().await;
    // The outage may have cost them their places, so that either may be first.
    let releases = waiters.map(|waiter| async {
        let waited = timeout(DEADLINE, waiter)
            .await
            .expect("it ends")
            .expect("it runs");
        drop(waited.expect("no error").expect("without a deadline"));
    });
    join_all(releases).await;
}

#[tokio::test]
async fn redis_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(OneRedis(Redis::start())).await;
}

#[tokio::test]
async fn redlock_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(FiveMasters::start()).await;
}

#[tokio::test]
async fn zookeeper_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(OneZooKeeper(ZooKeeper::start())).await;
}
