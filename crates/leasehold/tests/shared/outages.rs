//! The errors of waiters whose store cannot be reached.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use leasehold::{Error, Guard, Locks, Owner, Refused, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Redis;

/// A store that sends no reply for this time is unavailable.
pub(crate) const OUTAGE_MAX: Duration = Duration::from_secs(10);
/// The time until a client notices the first missing reply, with the delays of a busy machine.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_secs(20);
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The servers of one store.
pub(crate) trait Servers {
    fn url(&self) -> String;
    fn kill(&mut self);
    fn pause(&self);
    fn resume(&self);
}

pub(crate) struct OneRedis {
    pub(crate) server: Redis,
    pub(crate) settings: &'static str,
}

impl OneRedis {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    pub(crate) fn with(settings: &'static str) -> Self {
        Self {
            server: Redis::start(),
            settings,
        }
    }
}

impl Servers for OneRedis {
    fn url(&self) -> String {
        format!("{}{}", self.server.url(), self.settings)
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn pause(&self) {
        self.server.pause();
    }

    fn resume(&self) {
        self.server.resume();
    }
}

pub(crate) struct FiveMasters(pub(crate) Vec<Redis>);

impl FiveMasters {
    pub(crate) fn start() -> Self {
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

/// A lock that one client holds, and the waiters of another client.
pub(crate) struct Fixture<S> {
    pub(crate) servers: S,
    pub(crate) held: Guard,
    pub(crate) locks: Locks,
}

impl<S: Servers> Fixture<S> {
    pub(crate) async fn begin(servers: S) -> Self {
        let theirs = open(&servers).await;
        let locks = open(&servers).await;
        let held = theirs.mutex("a").acquire().await.expect("granted");
        Self {
            servers,
            held,
            locks,
        }
    }

    /// Starts a waiter, and returns when the waiter is in the queue.
    pub(crate) async fn waiter(
        &self,
        wait: Option<Duration>,
    ) -> JoinHandle<Result<Result<Guard, Refused>>> {
        let before = self.count_waiters().await;
        let lock = self.locks.mutex("a");
        let waiter = tokio::spawn(async move {
            match wait {
                Some(wait) => lock.try_acquire_for(wait).await,
                None => lock.acquire().await.map(Ok),
            }
        });

        let begun = Instant::now();
        while self.count_waiters().await == before {
            assert!(begun.elapsed() < DEADLINE, "it does not wait");
            sleep(Duration::from_millis(1)).await;
        }
        waiter
    }

    /// On a busy machine a request can miss a short timeout of the URL, so it is sent again.
    pub(crate) async fn count_waiters(&self) -> usize {
        let begun = Instant::now();
        loop {
            match self.locks.inspect("a").await {
                Ok(lock_state) => return lock_state.waiters().count(),
                Err(error) => assert!(begun.elapsed() < DEADLINE, "not inspected: {error}"),
            }
        }
    }
}

pub(crate) async fn open(servers: &impl Servers) -> Locks {
    leasehold::open(&servers.url()).await.expect("it opens")
}

pub(crate) async fn refused(waiter: JoinHandle<Result<Result<Guard, Refused>>>) -> Error {
    let ended = timeout(DEADLINE, waiter).await.expect("it ends");
    let granted = ended.expect("it runs");
    let error = granted
        .map(|guard| guard.map(|guard| guard.token()))
        .expect_err("no server can grant it");
    assert!(error.is_unavailable(), "{error}");
    error
}

/// Some of the waiters are behind another waiter of the same client.
pub(crate) async fn waiters_are_refused_after_ten_seconds(servers: impl Servers) {
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

/// Shows G-26.
#[tokio::test]
async fn redis_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(OneRedis::start()).await;
}

/// Shows G-26.
#[tokio::test]
async fn redlock_waiters_are_refused_after_ten_seconds_without_reply() {
    waiters_are_refused_after_ten_seconds(FiveMasters::start()).await;
}

/// A wait with a deadline ends without an error on a reachable store, and as unavailable on a store
/// without servers.
pub(crate) async fn deadline_without_store_is_unavailable(servers: impl Servers) {
    const WAIT: Duration = Duration::from_secs(4);
    let mut fixture = Fixture::begin(servers).await;
    let waiter = fixture.waiter(Some(WAIT)).await;
    let contended = waiter.await.expect("it runs");
    assert!(contended.expect("the store is reachable").is_err());

    let begun = Instant::now();
    let waiter = fixture.waiter(Some(WAIT)).await;
    fixture.servers.kill();
    let error = refused(waiter).await;
    let took = begun.elapsed();
    assert!(took >= WAIT && took < WAIT * 2, "after {took:?}: {error}");
}

/// Shows G-26.
#[tokio::test]
async fn redis_deadline_without_server_is_unavailable() {
    deadline_without_store_is_unavailable(OneRedis::start()).await;
}

/// Shows G-26.
#[tokio::test]
async fn redlock_deadline_without_masters_is_unavailable() {
    deadline_without_store_is_unavailable(FiveMasters::start()).await;
}

/// Without a reply no try ends with `None`, which means that the lock is held, however soon it
/// ends. A waiter of the same client proves nothing either: its queue entry had a reply before.
pub(crate) async fn tries_without_reply_are_unavailable(servers: impl Servers) {
    let mut fixture = Fixture::begin(servers).await;
    let waiter = fixture.waiter(None).await;
    fixture.servers.kill();

    let mut tries = Vec::new();
    for wait in [0, 10, 300, 2_000].map(Duration::from_millis) {
        for name in ["a", &format!("not a: {wait:?}")] {
            let lock = fixture.locks.mutex(name);
            tries.push(tokio::spawn(lock.try_acquire_for(wait)));
        }
    }
    let begun = Instant::now();
    for error in join_all(tries.into_iter().map(refused)).await {
        let took = begun.elapsed();
        assert!(
            took < OUTAGE_MAX + NOTICED_WITHIN,
            "after {took:?}: {error}"
        );
    }
    waiter.abort();
}

/// Shows G-26.
#[tokio::test]
async fn redis_tries_without_reply_are_unavailable() {
    tries_without_reply_are_unavailable(OneRedis::start()).await;
}

/// Shows G-26.
#[tokio::test]
async fn plain_tries_without_reply_are_unavailable() {
    tries_without_reply_are_unavailable(OneRedis::with("?dialect=plain")).await;
}

/// Shows G-26.
#[tokio::test]
async fn redisson_tries_without_reply_are_unavailable() {
    tries_without_reply_are_unavailable(OneRedis::with("?dialect=redisson")).await;
}

/// Shows G-26.
#[tokio::test]
async fn redlock_tries_without_reply_are_unavailable() {
    tries_without_reply_are_unavailable(FiveMasters::start()).await;
}

/// Another task of the owner waits for the store, not for a holder.
///
/// Shows G-26.
#[tokio::test]
async fn owner_without_reply_is_unavailable() {
    let mut servers = OneRedis::start();
    let lock = open(&servers).await.reentrant("a");
    servers.kill();

    let owner = Owner::new();
    let mut first = pin!(lock.acquire(&owner));
    assert!(poll!(&mut first).is_pending());
    for tried in [
        lock.try_acquire(&owner).await,
        lock.try_acquire_for(&owner, Duration::from_millis(10))
            .await,
    ] {
        let error = tried.expect_err("no reply has refused it");
        assert!(error.is_unavailable(), "{error}");
    }
}

/// A waiter survives servers that are paused for less than ten seconds, without an error.
pub(crate) async fn waiter_survives_short_outage(servers: impl Servers) {
    let fixture = Fixture::begin(servers).await;
    let waiters = [fixture.waiter(None).await, fixture.waiter(None).await];
    fixture.servers.pause();
    sleep(OUTAGE_MAX / 2).await;
    fixture.servers.resume();

    // The hold may have been lost in the outage.
    let _ = fixture.held.release().await;
    // The waiters may have lost their positions in the outage, so either may be first.
    let releases = waiters.map(|waiter| async {
        let ended = timeout(DEADLINE, waiter).await.expect("it ends");
        let waited = ended.expect("it runs").expect("no error");
        drop(waited.expect("without a deadline"));
    });
    join_all(releases).await;
}

/// Shows G-26.
#[tokio::test]
async fn redis_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(OneRedis::start()).await;
}

/// Shows G-26.
#[tokio::test]
async fn redlock_waiter_survives_short_outage_without_error() {
    waiter_survives_short_outage(FiveMasters::start()).await;
}
