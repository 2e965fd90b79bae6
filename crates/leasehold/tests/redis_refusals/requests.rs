//! Requests that a supported server refuses.

use std::time::Duration;

use lab_servers::{Redis, Reply};
use leasehold::{Error, Lock, Locks};
use leasehold_conformance::support::eventually;

use super::{check, hold, open};

/// Shows G-23, G-27, S13.
#[tokio::test]
async fn keys_of_another_type_are_refused() {
    for key in [
        "leasehold:{a}",
        "leasehold:{a}:claims",
        "leasehold:{a}:queue",
        "leasehold:{a}:holders",
    ] {
        let server = Redis::start();
        let locks = open(&server.url()).await;
        server.command(&["LPUSH", key, "mine"]);
        // A reader needs all four keys.
        let error = locks.rwlock("a").shared().acquire().await.expect_err(key);
        check(&error, Error::is_damaged, "not of leasehold's type");
        assert_eq!(
            server.command(&["LRANGE", key, "0", "-1"]).texts(),
            ["mine"]
        );
        assert_eq!(
            server.command(&["DBSIZE"]).int(),
            1,
            "something was written before the refusal"
        );
    }
}

/// Shows G-23, S13.
#[tokio::test]
async fn foreign_text_is_refused() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    for text in [
        "",
        "mine",
        "0000000000000000X",
        "00000000000000000000000000000000",
    ] {
        server.command(&["SET", "leasehold:{a}", text]);
        if text.is_empty() {
            continue;
        }
        check(
            &locks.mutex("a").acquire().await.expect_err(text),
            Error::is_damaged,
            "was not written by leasehold",
        );
        assert_eq!(server.command(&["GET", "leasehold:{a}"]).text(), text);
    }
}

/// Shows G-28, S12.
#[tokio::test]
async fn server_without_memory_is_reported() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    let alone = hold(&locks, "alone").await;
    let first = hold(&locks, "queue").await;
    let second = locks.mutex("queue");
    let waiting = tokio::spawn(async move { second.acquire().await });
    while locks
        .inspect("queue")
        .await
        .expect("read")
        .waiters()
        .count()
        == 0
    {
        tokio::task::yield_now().await;
    }
    let short = locks
        .mutex("short")
        .lease(Duration::from_millis(1500))
        .acquire()
        .await
        .expect("granted");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    check(
        &locks
            .mutex("new")
            .acquire()
            .await
            .expect_err("the server has no memory"),
        Error::is_unavailable,
        "raise its maxmemory",
    );
    // The client can still renew, release, and hand over the locks that it holds.
    let kept = tokio::time::timeout(Duration::from_secs(4), short.lost()).await;
    assert!(kept.is_err(), "{kept:?}");
    short.release().await.expect("released");
    alone.release().await.expect("released");
    first.release().await.expect("released");
    waiting
        .await
        .expect("the task runs")
        .expect("granted")
        .release()
        .await
        .expect("released");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    for name in ["alone", "queue", "short"] {
        assert!(
            locks.inspect(name).await.expect("read").entries.is_empty(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn full_server_refuses_new_claims_of_redisson_and_keeps_its_holds() {
    tokio::join!(
        keep_holds_of_redisson("", |locks, name| locks.mutex(name)),
        keep_holds_of_redisson("&lock=fenced", |locks, name| locks.mutex(name)),
        keep_holds_of_redisson("&lock=rw", |locks, name| locks.rwlock(name).shared()),
        keep_holds_of_redisson("&lock=rw", |locks, name| locks.rwlock(name).exclusive()),
        keep_holds_of_redisson("&lock=semaphore", |locks, name| {
            locks.semaphore(name, 3).permits(2)
        }),
    );
}

async fn keep_holds_of_redisson(class: &str, lock: fn(&Locks, &str) -> Lock) {
    let server = Redis::start();
    let locks = open(&format!("{}?dialect=redisson{class}", server.url())).await;
    let held = lock(&locks, "held").lease(Duration::from_millis(1_500));
    let guard = held.acquire().await.expect("granted");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);

    let refused = lock(&locks, "new").acquire().await;
    let error = refused.expect_err("the server has no memory");
    check(&error, Error::is_unavailable, "raise its maxmemory");
    let kept = tokio::time::timeout(Duration::from_secs(4), guard.lost()).await;
    assert!(kept.is_err(), "{class}: {kept:?}");
    guard.release().await.expect("released");
    let entries = locks.inspect("held").await.expect("read").entries;
    assert!(entries.is_empty(), "{class}: {entries:?}");
}

/// A server without memory executes a release, or says that it does not.
///
/// Shows G-28.
#[tokio::test]
async fn release_without_memory_frees_the_lock() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    let others = open(&server.url()).await;
    let held = hold(&locks, "a").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    held.release().await.expect("released");

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let next = others.mutex("a").try_acquire().await.expect("it replies");
    drop(next.expect("the lock is free"));
}

/// Shows G-28.
#[tokio::test]
async fn too_few_replicas_to_write_are_reported() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = locks.mutex("a").acquire().await.expect_err("refused");
    check(&error, Error::is_unavailable, "bring the replicas back");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    drop(hold(&locks, "a").await);
}

/// Shows G-28.
#[tokio::test]
async fn grant_without_its_replicas_is_given_back() {
    let master = Redis::start();
    let locks = open(&format!("{}?replicas=1", master.url())).await;
    let lock = locks.mutex("a").lease(Duration::from_secs(12));
    check(
        &lock.acquire().await.expect_err("a replica is missing"),
        Error::is_unavailable,
        "only 0 of 1 replicas",
    );
    eventually("the grant to be given back", || async {
        locks.inspect("a").await.expect("read").entries.is_empty()
    })
    .await;
    let replica = Redis::setup().replica_of(&master).start();
    replica.in_step_with(&master);
    let held = lock.acquire().await.expect("granted");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while locks.inspect("a").await.expect("read").waiters().count() == 0 {
        tokio::task::yield_now().await;
    }
    held.release().await.expect("released");
    waiting
        .await
        .expect("the task runs")
        .expect("handed over")
        .release()
        .await
        .expect("released");
}

#[tokio::test]
async fn busy_script_is_reported() {
    let server = Redis::configured(&[("busy-reply-threshold", "50")]);
    let locks = open(&server.url()).await;
    let mut other = server.connection();
    other
        .send(&lab_servers::request(&["EVAL", "while true do end", "0"]))
        .expect("sent");
    while !matches!(server.request(&["PING"]), Reply::Error(busy) if busy.starts_with("BUSY")) {}
    check(
        &locks.mutex("a").acquire().await.expect_err("busy"),
        Error::is_unavailable,
        "SCRIPT KILL",
    );
    server.command(&["SCRIPT", "KILL"]);
    drop(hold(&locks, "a").await);
}
