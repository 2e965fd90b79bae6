//! Redisson: its fair lock, its fenced lock, its watchdog, its subscriptions.

use lab_servers::{Redis, Wire};
use leasehold::store::{OnContention, Store};
use leasehold::{Owner, stores};

use super::{claim, open, waiters, within_timeout};

/// Dead heads of the queue keep the lock from everybody until their deadline, and live waiters ask without a pause.
#[tokio::test]
async fn redisson_fair_lock_dead_head_delays_by_one_grace() {
    let server = Redis::start();
    let (theirs, ours) = (open(&server.url()).await, open(&server.url()).await);
    let wire = Wire::to(server.address());
    let dying = open(&wire.url_of("redis")).await;
    let held = theirs.mutex("a").acquire().await.expect("granted");
    let mut dead = tokio::task::JoinSet::new();
    for count in 1..=5 {
        let lock = dying.mutex("a");
        dead.spawn(async move { lock.acquire().await });
        waiters(&theirs, "a", count).await;
    }
    let lock = ours.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "a", 6).await;
    wire.refuse(true);
    wire.partition();
    server.command(&["CONFIG", "RESETSTAT"]);
    held.release().await.expect("released");
    let next = within_timeout("the first that lives holds", waiting)
        .await
        .expect("it runs")
        .expect("granted");
    let scripts = server
        .info("commandstats")
        .lines()
        .filter_map(calls_of_scripts)
        .sum::<u64>();
    assert!(scripts < 500, "it asks without a pause: {scripts} times");
    next.check().expect("held");
}

fn calls_of_scripts(line: &str) -> Option<u64> {
    let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
    calls.split(',').next()?.parse().ok()
}

/// Its token rises with each nested acquire, and after a loss is the next holder's.
#[tokio::test]
async fn redisson_fenced_lock_token_belongs_to_its_grant() {
    let server = Redis::start();
    let (ours, theirs) = (open(&server.url()).await, open(&server.url()).await);
    let (lock, owner) = (ours.reentrant("a"), Owner::new());
    let outer = lock.acquire(&owner).await.expect("granted");
    let inner = lock.acquire(&owner).await.expect("granted");
    assert_eq!(outer.token(), inner.token());
    let token = outer.token();
    theirs
        .break_hold("a", token)
        .await
        .expect("asked")
        .expect("it was held");
    let next = within_timeout("the next holds", theirs.mutex("a").acquire())
        .await
        .expect("granted");
    within_timeout("the loss is heard", outer.lost()).await;
    assert!(outer.token() == token && next.token() > token);
}

/// Each nested acquire of its write lock adds a lease to what is left, so a crash takes ever longer to be noticed.
#[tokio::test]
async fn redisson_write_lock_reentry_does_not_extend_the_lease() {
    const DAY_AND_LEASE: i64 = (24 * 60 * 60 + 30) * 1000;
    let server = Redis::start();
    let store = stores::Redis::builder(&server.url())
        .expect("a good URL")
        .connect()
        .await
        .expect("it connects");
    let claim = claim("a");
    for _ in 0..5 {
        let entered = store
            .enter(&claim, OnContention::Queue)
            .await
            .expect("entered");
        assert!(entered.standing.token().is_some());
        assert!(server.command(&["PTTL", "leasehold:{a}"]).int() <= DAY_AND_LEASE);
    }
}

/// It takes one replica for as many as were asked for; and whoever wants none waits for them all the same.
#[tokio::test]
async fn redisson_too_few_replicas_refuse_the_grant() {
    let server = Redis::start();
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    let error = open(&format!("{}?replicas=2", server.url()))
        .await
        .mutex("a")
        .acquire()
        .await
        .expect_err("too few");
    assert!(
        error.to_string().contains("only 1 of 2 replicas"),
        "{error}"
    );
    server.command(&["CONFIG", "RESETSTAT"]);
    let locks = open(&server.url()).await;
    let held = within_timeout("it was given back", locks.mutex("a").acquire())
        .await
        .expect("granted");
    held.release().await.expect("released");
    assert!(
        !server.info("commandstats").contains("wait"),
        "nobody asked for replicas, or for the disk"
    );
}

/// A renewal that comes after the release takes the lock again, or keeps another's.
#[tokio::test]
async fn redisson_late_renewal_does_not_undo_a_release() {
    let server = Redis::start();
    let store = stores::Redis::builder(&server.url())
        .expect("a good URL")
        .connect()
        .await
        .expect("it connects");
    let (first, second) = (claim("a"), claim("a"));
    let enter = async |claim| {
        store
            .enter(claim, OnContention::Queue)
            .await
            .expect("entered")
            .standing
    };
    let token = enter(&first).await.token().expect("it is free");
    store.leave(&first).await.expect("left");
    let late = [first.clone()];
    assert_eq!(store.renew(&late).await.expect("asked"), [None]);
    assert!(enter(&second).await.token().expect("it is free") > token);
    let short = (24 * 60 * 60 * 1000 + 10_000).to_string();
    server.command(&["PEXPIRE", "leasehold:{a}", &short]);
    assert_eq!(store.renew(&late).await.expect("asked"), [None]);
    assert!(
        server.command(&["PTTL", "leasehold:{a}"]).int() <= short.parse().expect("a number"),
        "another was renewed"
    );
    assert!(!store.leave(&first).await.expect("asked"));
    assert!(
        server.command(&["GET", "leasehold:{a}"]).text()[16..].starts_with('H'),
        "another was released"
    );
}

/// Each lock that is waited for takes a subscription of a small pool.
#[tokio::test]
async fn redisson_many_waiters_need_no_more_connections() {
    let server = Redis::start();
    let (theirs, ours) = (open(&server.url()).await, open(&server.url()).await);
    let clients = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    let before = clients();
    let (mut held, mut waiting) = (Vec::new(), tokio::task::JoinSet::new());
    for number in 0..200 {
        let name = format!("name-{number}");
        held.push(theirs.mutex(&name).acquire().await.expect("granted"));
        let lock = ours.mutex(&name);
        waiting.spawn(async move { lock.acquire().await });
    }
    for number in 0..200 {
        waiters(&theirs, &format!("name-{number}"), 1).await;
    }
    assert_eq!(clients(), before);
    assert_eq!(
        server.command(&["PUBSUB", "CHANNELS"]).list().len(),
        4,
        "two for each client"
    );
    drop(held);
    while let Some(granted) = within_timeout("all are granted", waiting.join_next()).await {
        granted
            .expect("it runs")
            .expect("granted")
            .release()
            .await
            .expect("released");
    }
}

/// Its counters of tokens either stay for ever, or begin anew when they were deleted. Who has seen a token is given a higher one.
#[tokio::test]
async fn redisson_deleted_token_counter_keeps_increasing() {
    let server = Redis::start();
    let locks = open(&server.url()).await;
    locks
        .mutex("a")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    let ahead = server.command(&["GET", "leasehold:{a}"]).text()[..16]
        .parse::<u64>()
        .expect("a token")
        + 3_600_000_000;
    server.command(&[
        "SET",
        "leasehold:{a}",
        &format!("{ahead:016}~"),
        "PX",
        "86400000",
    ]);
    let seen = locks.mutex("a").acquire().await.expect("granted");
    assert!(seen.token().get() > ahead);
    server.command(&["FLUSHALL"]);
    let token = seen.token();
    assert!(seen.release().await.expect_err("it was flushed").is_lost());
    let next = within_timeout("the next holds", locks.mutex("a").acquire())
        .await
        .expect("granted");
    assert!(
        next.token() > token,
        "the clock is an hour behind what was seen"
    );
}
