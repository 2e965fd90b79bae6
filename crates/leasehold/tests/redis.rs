//! The guarantees that only the Redis store gives, on real servers.
#![cfg(feature = "redis")]
#![allow(missing_docs)]

use std::fmt::Debug;
use std::time::{Duration, Instant};

use lab_servers::{Redis, Wire};
use leasehold::{Guard, Locks, LossReason};

/// How long a test waits at most for an event that must come: less than a third of the usual lease.
const TIMEOUT: Duration = Duration::from_secs(9);

async fn open(url: &str, settings: &str) -> Locks {
    leasehold::open(&format!("{url}?{settings}"))
        .await
        .expect("the store opens")
}

/// A client that the wire can cut off from the server.
async fn remote(server: &Redis, settings: &str) -> (Wire, Locks) {
    let wire = Wire::to(server.address());
    let locks = open(&wire.url_of("redis"), settings).await;
    (wire, locks)
}

fn cut_off(wire: &Wire) {
    wire.refuse(true);
    wire.partition();
}

async fn within_timeout<T: Debug>(what: &str, reply: impl Future<Output = T>) -> T {
    let reply = tokio::time::timeout(TIMEOUT, reply).await;
    reply.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

async fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let started = Instant::now();
    while !look() {
        assert!(
            started.elapsed() < TIMEOUT,
            "not within {TIMEOUT:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn waiters(locks: &Locks, name: &str, count: usize) {
    while locks.inspect(name).await.expect("read").waiters().count() != count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn held_for(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

/// The server must receive a sign of life from a holder within the grace, which is shorter than the
/// lease. This holds for claims under crash detection.
#[tokio::test]
async fn hold_survives_beyond_the_grace() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=500ms").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let waiting = locks.mutex("a");
    assert!(
        waiting
            .try_acquire_for(Duration::from_secs(2))
            .await
            .expect("replied")
            .is_none()
    );
    held.check().expect("still held");
}

/// After a reply that did not arrive, too, the client sends its next request within the grace. The
/// length of the lease does not matter.
#[tokio::test]
async fn lock_survives_disconnect_shorter_than_grace() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=4s").await;
    let held = locks
        .mutex("a")
        .lease(Duration::from_secs(3600))
        .acquire()
        .await
        .expect("granted");
    cut_off(&wire);
    eventually("a renewal without a reply", || {
        held.renewal() == leasehold::RenewalStatus::Late
    })
    .await;
    wire.refuse(false);
    held_for(&held, Duration::from_secs(8)).await;
}

/// The client replaces a connection that delivers no replies before the hold that depends on the
/// connection is lost.
#[tokio::test]
async fn lock_survives_a_deaf_connection() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=2s").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    wire.drop_replies_silently();
    held_for(&held, Duration::from_secs(5)).await;
}

/// A server, or a proxy before it, closes the connection after the handshake. The client does not
/// reconnect over and over without a pause.
#[tokio::test]
async fn server_that_hangs_up_after_handshake_gets_no_reconnect_storm() {
    const CONNECTIONS_MAX: u64 = 60;
    let server = Redis::start();
    let (wire, _locks) = remote(&server, "crash-grace=10s").await;

    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }

    let made = wire.traffic().connections;
    assert!(made < CONNECTIONS_MAX, "{made} connections in two seconds");
}

/// Tokens are compared as numbers. The locale of the server sorts the bytes behind the tokens, but
/// it does not affect the comparison.
#[tokio::test]
async fn tokens_increase_in_any_locale() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let ahead = async |micros: u64| {
        let guard = locks.mutex("a").acquire().await.expect("granted");
        let token = guard.token().get() + micros;
        guard.release().await.expect("released");
        server.command(&[
            "SET",
            "leasehold:{a}",
            &format!("{token:016}~"),
            "PX",
            "86400000",
        ]);
        token
    };
    // The token is ahead of the clock, so that the next proposed token is one above the last token
    // that the client saw.
    for _ in 0..3 {
        ahead(1_000_000).await;
        let last = ahead(1).await;
        let guard = locks.mutex("a").acquire().await.expect("granted");
        assert!(guard.token().get() > last, "token {last} was given again");
        guard.release().await.expect("released");
    }
}

/// The waiter's grace is shorter than the grace that the holder counts on. By its own grace the
/// waiter would take the lock while it is held.
#[tokio::test]
async fn grace_of_the_holder_is_respected() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=4s").await;
    let impatient = open(&server.url(), "crash-grace=500ms").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    cut_off(&wire);
    let _next = within_timeout("the next client holds", impatient.mutex("a").acquire())
        .await
        .expect("granted");
    assert!(held.check().is_err(), "two clients hold it");
}

/// A crash is detected with all options of the waiting claim.
#[tokio::test]
async fn every_waiter_detects_a_crash() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=2s").await;
    let second = Duration::from_secs(1);
    for lock in [
        locks.mutex("a").no_renewal(),
        locks.mutex("a").lease(second),
    ] {
        let (wire, crashing) = remote(&server, "crash-grace=2s").await;
        let _held = crashing.mutex("a").acquire().await.expect("granted");
        cut_off(&wire);
        within_timeout("the next client holds", lock.acquire())
            .await
            .expect("granted")
            .release()
            .await
            .expect("released");
    }
}

/// A crashed holder is found among many holders.
#[tokio::test]
async fn crash_among_many_holders_is_detected() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=1s").await;
    let (wire, crashing) = remote(&server, "crash-grace=1s").await;
    let slot = |locks: &Locks| locks.semaphore("a", 60);
    let mut held = Vec::new();
    for round in 0..60 {
        let locks = if round == 30 { &crashing } else { &locks };
        held.push(slot(locks).acquire().await.expect("granted"));
    }
    cut_off(&wire);
    let _last = within_timeout(
        "the slot of the crashed holder is free",
        slot(&locks).acquire(),
    )
    .await
    .expect("granted");
}

/// Keys that only renewals touch live for as long as the renewals come.
#[tokio::test]
async fn renewal_keeps_all_keys_of_a_queue() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let _held = locks
        .semaphore("a", 2)
        .lease(Duration::from_secs(1))
        .acquire()
        .await
        .expect("granted");
    for key in [
        "leasehold:{a}",
        "leasehold:{a}:claims",
        "leasehold:{a}:holders",
    ] {
        server.command(&["PEXPIRE", key, "60000"]);
        eventually(key, || server.command(&["PTTL", key]).int() > 100_000_000).await;
    }
}

/// A user who deletes keys by hand deletes the claims in these keys too. The share that those
/// claims had taken becomes free.
#[tokio::test]
async fn deleted_claims_free_their_share() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let slot = locks.semaphore("a", 2);
    let _held = (
        slot.acquire().await.expect("granted"),
        slot.acquire().await.expect("granted"),
    );
    server.command(&["DEL", "leasehold:{a}:claims", "leasehold:{a}:holders"]);
    let _next = within_timeout("both slots are free", slot.acquire())
        .await
        .expect("granted");
}

/// Waiting for a replica that sends no reply does not delay the requests of other locks.
#[tokio::test]
async fn waiting_for_replicas_does_not_cost_other_locks() {
    let server = Redis::start();
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    let locks = open(&server.url(), "replicas=1&crash-grace=1s").await;
    let held = locks.mutex("held").acquire().await.expect("granted");
    replica.pause();
    let others: Vec<_> = (0..8)
        .map(|n| {
            tokio::spawn({
                let lock = locks.mutex(&format!("other-{n}"));
                async move { lock.acquire().await }
            })
        })
        .collect();
    held_for(&held, Duration::from_secs(5)).await;
    for other in others {
        other.abort();
    }
    replica.resume();
}

/// The reply with a grant took longer than the client may trust it. The client confirms the grant
/// with another request before it returns the guard.
#[tokio::test]
async fn late_grant_is_confirmed_before_it_is_returned() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=500ms").await;
    // The server learns the script.
    locks
        .mutex("b")
        .acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    wire.hold_replies(true);
    let lock = locks.mutex("a");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    eventually("the lock is granted", || {
        server.command(&["EXISTS", "leasehold:{a}"]).int() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    wire.hold_replies(false);
    let guard = within_timeout("the lock is granted", acquiring)
        .await
        .expect("the task runs")
        .expect("granted");
    guard.check().expect("held");
}

/// A holder that only calls `check`, and waits for no notification, also learns that its hold was
/// broken.
#[tokio::test]
async fn broken_hold_is_reported_lost_soon() {
    let server = Redis::start();
    let ours = open(&server.url(), "crash-grace=1s").await;
    let theirs = open(&server.url(), "").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    theirs
        .break_hold("a", held.token())
        .await
        .expect("replied")
        .expect("the lock was held");
    let started = Instant::now();
    eventually("the hold ends", || held.check().is_err()).await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

/// A name is not mistaken for an error message.
#[tokio::test]
async fn lock_names_are_not_parsed_as_error_codes() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    for name in ["MISMATCH/1/3", "HINT", "MISMATCH", "WRONGPASS", "LARGER"] {
        server.command(&["SET", &format!("leasehold:{{{name}}}"), "something else"]);
        let error = locks.mutex(name).try_acquire().await.expect_err("foreign");
        assert!(error.is_damaged(), "{name}: {error}");
    }
}

/// A claim without crash detection finds its turn even if no client may send it a notification.
#[tokio::test]
async fn waiter_is_granted_without_notifications() {
    let silent = "app on nopass ~leasehold:* &leasehold:* +@all -publish";
    let server = Redis::setup().acl(silent).start();
    let url = server.url().replace("redis://", "redis://app:x@");
    let ours = open(&url, "crash-grace=off").await;
    let theirs = open(&url, "crash-grace=off").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let lock = theirs.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&ours, "a", 1).await;
    held.release().await.expect("released");
    let _next = within_timeout("the next client holds", waiting)
        .await
        .expect("the task runs")
        .expect("granted");
}

/// A client detects that a connection delivers no replies, although other requests on it are
/// cancelled meanwhile.
#[tokio::test]
async fn cancelled_request_does_not_mask_dead_connection() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "").await;
    wire.drop_replies_silently();
    let lock = locks.mutex("a");
    let acquiring = async {
        let granted = lock.acquire().await;
        granted.expect("granted by another connection")
    };
    let giving_up = async {
        loop {
            let _ = tokio::time::timeout(Duration::from_millis(50), locks.inspect("b")).await;
        }
    };
    tokio::select! {
        _guard = within_timeout("the lock is granted", acquiring) => {}
        () = giving_up => {}
    }
}

/// Waiting for replicas is not mistaken for a connection that delivers no replies.
#[tokio::test]
async fn missing_replicas_refuse_the_grant() {
    let server = Redis::start();
    let locks = open(&server.url(), "replicas=1").await;
    let error = locks
        .mutex("a")
        .acquire()
        .await
        .expect_err("the server has no replica");
    assert!(
        error.to_string().contains("only 0 of 1 replicas"),
        "{error}"
    );
}

/// A hold that the server has forgotten ends long before a third of a long lease.
#[tokio::test]
async fn forgotten_hold_is_reported_lost_soon() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=500ms").await;
    let held = locks
        .mutex("a")
        .lease(Duration::from_secs(3600))
        .acquire()
        .await
        .expect("granted");
    server.command(&["FLUSHALL"]);
    eventually("the hold ends", || held.check().is_err()).await;
}

/// A user ran PERSIST on the key of a held lock. The lock stays held, and its key expires again.
#[tokio::test]
async fn persisted_key_stays_held_and_expires_again() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let theirs = open(&server.url(), "").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    server.command(&["PERSIST", "leasehold:{a}"]);
    assert_eq!(
        theirs.inspect("a").await.expect("read").holders().count(),
        1
    );
    assert_eq!(theirs.list("", 9).await.expect("listed").len(), 1);
    assert!(
        theirs
            .mutex("a")
            .try_acquire()
            .await
            .expect("replied")
            .is_none(),
        "two clients hold the lock"
    );
    assert!(server.command(&["PTTL", "leasehold:{a}"]).int() > 0);
    held.release().await.expect("released");
}

/// A server that refuses writes also refuses renewals, although it sends replies. The hold ends
/// before its lease does.
#[tokio::test]
async fn write_refusal_ends_the_hold_before_its_lease() {
    let server = Redis::start();
    let ours = open(&server.url(), "crash-grace=500ms").await;
    let theirs = open(&server.url(), "").await;
    let held = ours
        .mutex("a")
        .lease(Duration::from_secs(3))
        .acquire()
        .await
        .expect("granted");
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(
        within_timeout("the hold is lost", held.lost()).await,
        LossReason::RenewalTimedOut
    );
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let next = within_timeout("the lease ends", theirs.mutex("a").acquire())
        .await
        .expect("granted");
    assert!(
        held.check()
            .expect_err("two clients hold the lock")
            .is_lost()
    );
    next.release().await.expect("released");
}

/// The connections of the first waiter break again and again, and break when its turn comes. It is
/// granted the lock without an error.
#[tokio::test]
async fn waiter_survives_reconnect_without_error() {
    let server = Redis::start();
    let theirs = open(&server.url(), "").await;
    let (wire, ours) = remote(&server, "crash-grace=500ms").await;
    for _ in 0..5 {
        let held = theirs.mutex("a").acquire().await.expect("granted");
        let lock = ours.mutex("a");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        waiters(&theirs, "a", 1).await;
        for _ in 0..10 {
            wire.partition();
            // The pace of the faults.
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        wire.partition();
        held.release().await.expect("released");
        let next = within_timeout("the waiter holds", waiting)
            .await
            .expect("the task runs")
            .expect("acquired without an error");
        next.release().await.expect("released");
    }
}

/// The client tries to release a lost lock on a silent server for a second at most. It does not
/// retry on a server that denies the release.
#[tokio::test]
async fn release_of_a_lost_lock_gives_up_soon() {
    const MUCH_LESS_THAN_TEN: Duration = Duration::from_secs(7);
    let server = Redis::setup()
        .acl("app on nopass ~leasehold:* &leasehold:* +@all")
        .start();
    let locks = open(
        &server.url().replace("redis://", "redis://app:x@"),
        "crash-grace=500ms",
    )
    .await;
    let silent = locks.mutex("a").acquire().await.expect("granted");
    let denied = locks.mutex("b").no_renewal().acquire().await;
    let denied = denied.expect("granted");
    server.pause();
    within_timeout("the hold is lost", silent.lost()).await;
    let begun = Instant::now();
    assert!(silent.release().await.expect_err("lost").is_lost());
    server.resume();
    server.command(&["ACL", "SETUSER", "app", "-setrange"]);
    let reply = denied.release().await.expect_err("denied");
    assert!(
        reply.is_denied() && begun.elapsed() < MUCH_LESS_THAN_TEN,
        "{reply} after {:?}",
        begun.elapsed()
    );
}

/// A waiter whose future is not polled is alive: it keeps its position, and is granted in its turn.
/// It does not check for absent claims before it.
#[tokio::test]
async fn unpolled_waiter_keeps_queue_position() {
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=500ms").await;
    let idle = open(&server.url(), "").await;
    let theirs = open(&server.url(), "crash-grace=500ms").await;
    let _held = gone
        .mutex("a")
        .lease(Duration::from_secs(4))
        .acquire()
        .await
        .expect("granted");
    let lock = idle.mutex("a").label("idle");
    let mut acquiring = Box::pin(lock.acquire());
    while theirs.inspect("a").await.expect("read").waiters().count() == 0 {
        let polled = tokio::time::timeout(Duration::from_millis(5), &mut acquiring).await;
        assert!(polled.is_err(), "two clients hold the lock");
    }
    let lock = theirs.mutex("a");
    let next = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "a", 2).await;
    cut_off(&wire);
    let started = Instant::now();
    while theirs
        .inspect("a")
        .await
        .expect("read")
        .holders()
        .all(|holder| holder.info.label != "idle")
    {
        assert!(
            started.elapsed() < TIMEOUT,
            "the idle waiter is not granted when the lease ends"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!next.is_finished(), "two clients hold the lock");
    drop(acquiring);
    let next = within_timeout("the next client holds", next)
        .await
        .expect("the task runs")
        .expect("granted");
    next.release().await.expect("released");
}

/// The reply to the first request of a waiter is lost. It is granted the lock, loses it without a
/// notification, and enters the queue again with the same claim. A notification of the first grant
/// does not apply to the second entry.
#[tokio::test]
async fn pushed_grant_of_an_earlier_entry_is_ignored() {
    let server = Redis::start();
    server.command(&[
        "ACL", "SETUSER", "mute", "on", ">x", "~*", "&*", "+@all", "-publish",
    ]);
    let wire = Wire::to(server.address());
    let loud = open(&server.url(), "crash-grace=off").await;
    let silent = open(
        &server.url().replace("redis://", "redis://mute:x@"),
        "crash-grace=off",
    )
    .await;
    let url = format!("{}?crash-grace=off", wire.url_of("redis"));
    // The waiter sends its requests on another connection than the one on which it receives grants.
    let ours = tokio::task::spawn_blocking(move || leasehold::blocking::open(&url))
        .await
        .expect("the task runs");
    let lock = ours
        .expect("the store opens")
        .mutex("a")
        .lease(Duration::from_secs(1));
    let first = loud.mutex("a").acquire().await.expect("granted");
    wire.drop_replies(1);
    let acquiring = tokio::task::spawn_blocking(move || lock.acquire());
    waiters(&loud, "a", 1).await;
    first.release().await.expect("released");
    let second = within_timeout("the lease ends", silent.mutex("a").acquire())
        .await
        .expect("granted");
    within_timeout("the waiter is in the queue again", waiters(&loud, "a", 1)).await;
    let token = second.token();
    second.release().await.expect("released");
    let third = within_timeout("the waiter is granted again", acquiring)
        .await
        .expect("the task runs")
        .expect("granted");
    assert!(
        third.token() > token,
        "the waiter held together with the second client"
    );
    tokio::task::spawn_blocking(move || third.release())
        .await
        .expect("the task runs")
        .expect("released");
}

/// Each reply arrives after the end of the lease that it reports. So the lease of a grant is over
/// when the client receives the grant.
#[tokio::test]
async fn lease_shorter_than_every_reply_is_refused() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=off").await;
    let lock = locks.mutex("a").lease(Duration::from_millis(100));
    // The server learns the scripts.
    let held = lock.acquire().await.expect("granted");
    let _ = tokio::time::timeout(Duration::from_millis(300), held.lost()).await;
    let _ = held.release().await;
    wire.delay(Duration::from_millis(60));
    let error = within_timeout("the grant is refused", lock.acquire())
        .await
        .expect_err("no reply arrives in time");
    assert!(error.is_unavailable(), "{error}");
    wire.delay(Duration::ZERO);
    within_timeout("the queue is empty", waiters(&locks, "a", 0)).await;
    within_timeout("the lock is granted", lock.acquire())
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
}
