//! Redisson: its fair lock, fenced lock, watchdog and subscriptions.

use lab_servers::{Redis, Wire};
use leasehold::store::{OnContention, Store};
use leasehold::stores;

use super::{claim, open, use_once, waiters, within_timeout};

/// In Redisson, dead waiters at the head of the queue block the lock until their deadlines. Live
/// waiters send requests without a pause.
#[tokio::test]
async fn redisson_fair_lock_dead_head_delays_by_one_grace() {
    let server = Redis::start();
    let theirs = open(&server.url()).await;
    let ours = open(&server.url()).await;
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
    let next = within_timeout("the first live waiter holds", waiting)
        .await
        .expect("it runs")
        .expect("granted");

    let statistics = server.info("commandstats");
    let scripts: u64 = statistics.lines().filter_map(calls_of_scripts).sum();
    assert!(scripts < 500, "the waiter sent {scripts} requests");
    next.check().expect("held");
}

fn calls_of_scripts(line: &str) -> Option<u64> {
    let (_, calls) = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?;
    calls.split(',').next()?.parse().ok()
}

/// Redisson accepts one replica in place of the requested number, and waits for replicas also if
/// none is requested.
#[tokio::test]
async fn redisson_too_few_replicas_refuse_the_grant() {
    let server = Redis::start();
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    let replicated = open(&format!("{}?replicas=2", server.url())).await;
    let error = replicated.mutex("a").acquire().await.expect_err("too few");
    let text = error.to_string();
    assert!(text.contains("only 1 of 2 replicas"), "{text}");

    server.command(&["CONFIG", "RESETSTAT"]);
    let locks = open(&server.url()).await;
    let held = within_timeout("it was given back", locks.mutex("a").acquire()).await;
    held.expect("granted").release().await.expect("released");
    let has_waited = server.info("commandstats").contains("wait");
    assert!(!has_waited, "it waited for replicas or for the disk");
}

/// In Redisson, a renewal that arrives after the release takes the lock again, or renews the hold
/// of another client.
///
/// Shows G-03.
#[tokio::test]
async fn redisson_late_renewal_does_not_undo_a_release() {
    let server = Redis::start();
    let store = connect_store(&server).await;
    let first = claim("a");
    let second = claim("a");
    let enter = async |claim| {
        let entered = store.enter(claim, OnContention::Queue).await;
        let standing = entered.expect("entered").standing;
        standing.token().expect("it is free")
    };
    let token = enter(&first).await;
    store.leave(&first).await.expect("left");
    let late = [first.clone()];
    assert_eq!(store.renew(&late).await.expect("sent"), [None]);
    assert!(enter(&second).await > token);

    let short = (24 * 60 * 60 * 1000 + 10_000).to_string();
    server.command(&["PEXPIRE", "leasehold:{a}", &short]);
    assert_eq!(store.renew(&late).await.expect("sent"), [None]);
    let remaining = server.command(&["PTTL", "leasehold:{a}"]).int();
    let is_renewed = remaining > short.parse().expect("a number");
    assert!(!is_renewed, "the hold of another client was renewed");

    assert!(!store.leave(&first).await.expect("sent"));
    let reply = server.command(&["GET", "leasehold:{a}"]);
    let is_held = reply.text()[16..].starts_with('H');
    assert!(is_held, "the hold of another client was released");
}

/// In Redisson, each lock with waiters takes a subscription of a small pool.
#[tokio::test]
async fn redisson_many_waiters_need_no_more_connections() {
    let server = Redis::start();
    let theirs = open(&server.url()).await;
    let ours = open(&server.url()).await;
    let clients = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    let before = clients();
    let mut held = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
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
    let channels = server.command(&["PUBSUB", "CHANNELS"]).list().len();
    assert_eq!(channels, 4, "two for each client");

    drop(held);
    while let Some(granted) = within_timeout("all are granted", waiting.join_next()).await {
        let held = granted.expect("it runs").expect("granted");
        held.release().await.expect("released");
    }
}

/// Redisson's token counters either stay forever, or start again after they were deleted. In
/// leasehold a client that has seen a token receives a higher one.
#[tokio::test]
async fn redisson_deleted_token_counter_keeps_increasing() {
    const HOUR_MICROS: u64 = 3_600_000_000;
    let server = Redis::start();
    let locks = open(&server.url()).await;
    use_once(&locks, "a").await;
    let reply = server.command(&["GET", "leasehold:{a}"]);
    let ahead = reply.text()[..16].parse::<u64>().expect("a token") + HOUR_MICROS;
    let record = format!("{ahead:016}~");
    server.command(&["SET", "leasehold:{a}", &record, "PX", "86400000"]);
    let seen = locks.mutex("a").acquire().await.expect("granted");
    assert!(seen.token().get() > ahead);

    server.command(&["FLUSHALL"]);
    let token = seen.token();
    assert!(seen.release().await.expect_err("it was flushed").is_lost());
    let next = within_timeout("the next holds", locks.mutex("a").acquire())
        .await
        .expect("granted")
        .token();
    assert!(next > token, "{next} follows {token} of an hour ahead");
}

async fn connect_store(server: &Redis) -> stores::Redis {
    let builder = stores::Redis::builder(&server.url()).expect("a good URL");
    builder.connect().await.expect("it connects")
}
