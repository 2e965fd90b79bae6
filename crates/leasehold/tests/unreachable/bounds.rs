//! The reply timeout bounds each call that does not wait for a holder.

use std::future::Future;
use std::pin::Pin;

use super::*;

/// The reply timeout of these tests, and a bound that a busy machine keeps and the ten seconds of
/// an acquire do not.
const REPLY_TIMEOUT: Duration = Duration::from_millis(300);
const ENDS_WITHIN: Duration = Duration::from_secs(4);

type Call = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Each call, with names that are held, free, and waited for in this process.
fn calls(locks: &Locks) -> Vec<Call> {
    let wait = REPLY_TIMEOUT * 2;
    let mut calls: Vec<Call> = Vec::new();
    for name in ["a", "free"] {
        let held = locks.mutex(name);
        let brief = held.clone();
        let waiting = held.clone();
        calls.push(Box::pin(async move { held.try_acquire().await.map(drop) }));
        calls.push(Box::pin(async move {
            let tried = brief.try_acquire_for(Duration::ZERO).await;
            tried.map(drop)
        }));
        calls.push(Box::pin(async move {
            waiting.try_acquire_for(wait).await.map(drop)
        }));

        let observed = locks.clone();
        calls.push(Box::pin(
            async move { observed.inspect(name).await.map(drop) },
        ));
    }

    let listed = locks.clone();
    calls.push(Box::pin(async move { listed.list("", 10).await.map(drop) }));
    let both = locks.multi_lock(["free", "also free"]);
    calls.push(Box::pin(async move { both.try_acquire().await.map(drop) }));
    let reentrant = locks.reentrant("free");
    calls.push(Box::pin(async move {
        reentrant.try_acquire(&Owner::new()).await.map(drop)
    }));
    if locks.guarantees().cohorts {
        for _ in 0..2 {
            let cohort = locks.mutex("free").cohort(4);
            calls.push(Box::pin(async move {
                cohort.try_acquire_for(wait).await.map(drop)
            }));
        }
        let behind_waiter = locks.mutex("a").cohort(4);
        calls.push(Box::pin(async move {
            behind_waiter.try_acquire().await.map(drop)
        }));
    }
    calls
}

/// Waiters that are in the queue when the store fails are bounded too.
async fn calls_end_within_reply_timeout<S: Servers>(servers: S, fail: impl FnOnce(&mut S)) {
    let mut fixture = Fixture::begin(servers).await;
    let locks = fixture.locks.clone().reply_timeout(REPLY_TIMEOUT);
    fixture.locks = locks.expect("it is in range");
    let waiter = fixture.waiter(Some(REPLY_TIMEOUT * 3)).await;
    // The reply that has queued this waiter of the cohort says nothing about the others' tries.
    let cohort = fixture.locks.mutex("a").cohort(4);
    let queued = fixture
        .locks
        .guarantees()
        .cohorts
        .then(|| tokio::spawn(cohort.acquire()));
    while queued.is_some() && fixture.count_waiters().await < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    fail(&mut fixture.servers);

    let begun = Instant::now();
    let mut calls = calls(&fixture.locks);
    calls.push(Box::pin(async { waiter.await.expect("it runs").map(drop) }));
    let ends = calls
        .into_iter()
        .enumerate()
        .map(|(index, call)| async move {
            let error = call.await.expect_err("no store replies");
            (index, begun.elapsed(), error)
        });
    for (index, took, error) in join_all(ends).await {
        assert!(error.is_unavailable(), "call {index}: {error}");
        assert!(took < ENDS_WITHIN, "call {index} took {took:?}: {error}");
    }
    if let Some(queued) = queued {
        queued.abort();
    }
}

/// Shows G-26.
#[tokio::test]
async fn calls_to_killed_redis_end_within_reply_timeout() {
    calls_end_within_reply_timeout(OneRedis::start(), Servers::kill).await;
}

/// Shows G-26.
#[tokio::test]
async fn calls_to_stopped_redis_end_within_reply_timeout() {
    calls_end_within_reply_timeout(OneRedis::start(), |redis| redis.pause()).await;
}

/// Shows G-26.
#[tokio::test]
async fn calls_without_majority_end_within_reply_timeout() {
    let kill = |masters: &mut FiveMasters| masters.0[..3].iter_mut().for_each(Redis::kill);
    calls_end_within_reply_timeout(FiveMasters::start(), kill).await;
}

/// Shows G-26.
#[tokio::test]
async fn calls_to_stopped_masters_end_within_reply_timeout() {
    calls_end_within_reply_timeout(FiveMasters::start(), |masters| masters.pause()).await;
}

/// Shows G-26.
#[tokio::test]
async fn calls_to_stopped_postgres_end_within_reply_timeout() {
    let servers = OnePostgres(Postgres::start());
    calls_end_within_reply_timeout(servers, |postgres| postgres.pause()).await;
}

/// Shows G-26.
#[tokio::test]
async fn calls_to_stopped_zookeeper_end_within_reply_timeout() {
    let servers = OneZooKeeper(ZooKeeper::start());
    calls_end_within_reply_timeout(servers, |zookeeper| zookeeper.pause()).await;
}

/// The URL of a store sets it, beside the store's own settings.
///
/// Shows G-26.
#[tokio::test]
async fn reply_timeout_of_url_bounds_a_try() {
    let servers = OneRedis::with("?reply-timeout=300ms&crash-grace=5s");
    let locks = open(&servers).await;
    servers.pause();

    let begun = Instant::now();
    let tried = locks.mutex("a").try_acquire().await;
    let error = tried.expect_err("the server does not reply");
    let took = begun.elapsed();
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("within 300ms"), "{error}");
    assert!(took < ENDS_WITHIN, "after {took:?}: {error}");
}

/// Shows G-35.
#[tokio::test]
async fn reply_timeout_out_of_range_is_refused() {
    for (url, text) in [
        ("memory:?reply-timeout=9ms", "from 10ms to 10s"),
        ("redis://127.0.0.1:1?reply-timeout=9ms", "from 10ms to 10s"),
        ("memory:?reply-timeout=11s", "from 10ms to 10s"),
        ("memory:?reply-timeout=soon", "write reply-timeout=2s"),
        (
            "redis://127.0.0.1:1?reply-timeuot=1s",
            "server-name, reply-timeout",
        ),
    ] {
        let error = leasehold::open(url).await.expect_err(url);
        assert!(error.is_invalid(), "{url}: {error}");
        assert!(error.to_string().contains(text), "{url}: {error}");
    }

    let built = leasehold::stores::Redis::builder("redis://127.0.0.1:1?reply-timeout=1s");
    let error = built.expect_err("it is no setting of the store");
    assert!(
        error.to_string().contains("Locks::reply_timeout"),
        "{error}"
    );
}
