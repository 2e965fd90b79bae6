//! Connections that break, deliver nothing, or wait for replicas.

use std::time::{Duration, Instant};

use lab_servers::{Redis, Wire};
use leasehold_conformance::support::{eventually, waiters, within_timeout};

use super::{calls, cut_off, granted, held_for, open, remote, wait_behind};

/// After a reply that did not arrive, too, the client sends its next request within the grace. The
/// length of the lease does not matter.
///
/// Shows G-05, G-13, G-25.
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
    eventually("a renewal without a reply", || async {
        held.renewal() == leasehold::RenewalStatus::Late
    })
    .await;
    wire.refuse(false);
    held_for(&held, Duration::from_secs(8)).await;
}

/// A holder connects again during a lease that is not renewed. The lease ends on the server when it
/// ends for the holder.
///
/// Shows G-14.
#[tokio::test]
async fn new_connection_does_not_extend_a_fixed_lease() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let fixed = locks.mutex("a").lease(Duration::from_secs(60)).no_renewal();
    let held = fixed.acquire().await.expect("granted");
    let watching = tokio::spawn(async move { held.lost().await });
    let end = || server.command(&["PEXPIRETIME", "leasehold:{a}"]).int();
    let before = end();
    // From now on a new lease would end clearly later.
    tokio::time::sleep(Duration::from_millis(500)).await;

    let written = calls(&server, "set");
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("the holder asks again", || async {
        calls(&server, "set") > written
    })
    .await;
    assert!(end() <= before + 100, "{} after {before}", end());
    watching.abort();
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

/// What a client sends while it connects again may be lost, and then nothing arrives on that connection
/// any more. It tries again while the hold is there.
///
/// Shows G-13.
#[tokio::test]
async fn silent_attempt_to_connect_again_loses_no_hold() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=4s").await;
    let held = locks.mutex("a").acquire().await.expect("granted");

    let before = wire.traffic();
    wire.lose_replies(true);
    wire.partition();
    eventually("replies to both connections are lost", || async {
        let now = wire.traffic();
        now.connections >= before.connections + 2 && now.lost > before.lost + 1_000
    })
    .await;
    wire.lose_replies(false);
    held_for(&held, Duration::from_secs(6)).await;
}

/// With RESP2, messages arrive on a connection of their own, which may be deaf alone.
///
/// Shows G-13.
#[tokio::test]
async fn deaf_subscription_is_replaced() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "protocol=2&crash-grace=2s").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let channels = server.command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"]);
    let before = wire.traffic().connections;

    wire.drop_replies(1);
    server.command(&["PUBLISH", channels.list()[0].text(), "lost"]);
    eventually("the subscription is replaced", || async {
        wire.traffic().connections > before
    })
    .await;
    held.release().await.expect("still held");
}

/// The holder sends no request before it releases, so nothing but the other connection shows that
/// this one is dead.
///
/// Shows G-10.
#[tokio::test]
async fn idle_deaf_connection_is_replaced_before_the_release() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let before = wire.traffic().connections;

    wire.drop_replies_silently();
    eventually("both connections are replaced", || async {
        wire.traffic().connections >= 2 * before
    })
    .await;
    held.release().await.expect("released");
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
                let lock = locks.mutex(format!("other-{n}"));
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

/// Between a grant and its confirmation by replicas, the server grants the claim again, with a
/// larger token. The guard does not get the token of the first grant.
#[tokio::test]
async fn grant_that_changes_before_replicas_have_it_is_not_returned() {
    let server = Redis::start();
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    let (wire, locks) = remote(&server, "replicas=1").await;
    cut_off_the_link_for_replicas(&server, &wire).await;

    let lock = locks.mutex("a");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    let granted = within_timeout("the server grants", token_of(&server)).await;
    let later = (granted + 1).to_string();
    server.command(&["SETRANGE", "leasehold:{a}", "0", &later]);
    wire.refuse(false);

    let held = within_timeout("the acquire ends", acquiring)
        .await
        .expect("the task runs")
        .expect("granted");
    assert!(held.token().get() > granted, "the grant had been replaced");
    assert_eq!(held.token().get(), token_of(&server).await);
    held.release().await.expect("released");
}

/// Cuts the connection on which the client waits for replicas, and no other.
async fn cut_off_the_link_for_replicas(server: &Redis, wire: &Wire) {
    let count = |channels: &str| {
        server
            .command(&["PUBSUB", "CHANNELS", channels])
            .list()
            .len()
    };
    let list = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let ids = list
        .text()
        .lines()
        .filter_map(|line| line.split(['=', ' ']).nth(1));

    for id in ids {
        wire.refuse(true);
        server.command(&["CLIENT", "KILL", "ID", id]);
        if count("leasehold:waiting:*") == 0 {
            return;
        }
        wire.refuse(false);
        within_timeout("the client connects again", async {
            while count("leasehold:*") < 3 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    panic!("no connection waits for replicas: {list:?}");
}

/// Waits until the lock is held, and returns the token, with which its record begins.
async fn token_of(server: &Redis) -> u64 {
    while server.command(&["EXISTS", "leasehold:{a}"]).int() == 0 {
        tokio::task::yield_now().await;
    }
    let token = server.command(&["GETRANGE", "leasehold:{a}", "0", "15"]);
    token.text().parse().expect("a number")
}

/// A request to enter had no reply, and its repetition is granted before a replica has the grant.
/// The client then neither releases that grant, nor the one that it holds once the replica is
/// there. Seven seconds after the first request, the server no longer executes it.
///
/// Shows G-01, G-16.
#[tokio::test]
async fn hold_survives_the_end_of_an_earlier_request_without_a_reply() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "replicas=1").await;
    let lock = locks.mutex("a");

    // The server keeps the script, so that the next client sends one request.
    let other = open(&server.url(), "").await;
    drop(other.mutex("b").acquire().await.expect("granted"));
    wire.lose_replies(true);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    within_timeout("the server grants", token_of(&server)).await;
    wire.lose_replies(false);
    wire.partition();
    eventually("the client to wait for a replica again", || async {
        server
            .info("commandstats")
            .contains("cmdstat_wait:calls=2,")
    })
    .await;
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);

    let held = within_timeout("the acquire ends", acquiring)
        .await
        .expect("the task runs")
        .expect("granted");
    held_for(&held, Duration::from_secs(8)).await;
    held.release().await.expect("the server still has the hold");
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

/// A replica that is connected counts only if it has received the grant.
///
/// Shows G-28.
#[tokio::test]
async fn grant_that_a_replica_has_not_received_is_refused() {
    let server = Redis::start();
    let replica = Redis::setup().replica_of(&server).start();
    replica.in_step_with(&server);
    let locks = open(&server.url(), "replicas=1").await;
    // The replica confirms all that was written so far.
    let mut writer = server.connection();
    for request in [["SET", "x", "1"], ["WAIT", "1", "9000"]] {
        let reply = writer.request(&request).expect("it replies");
        assert!(!reply.is_error(), "{reply:?}");
    }

    replica.pause();
    let acquired = locks.mutex("a").acquire().await;
    let error = acquired.expect_err("the replica receives nothing");
    assert!(
        error.to_string().contains("only 0 of 1 replicas"),
        "{error}"
    );
}

/// The connections of the first waiter break again and again, and break when its turn comes. It is
/// granted the lock without an error.
///
/// Shows G-05, G-25.
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
///
/// Shows G-10.
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
    let denied = locks
        .mutex("b")
        .no_renewal()
        .acquire()
        .await
        .expect("granted");
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

/// The first waiter in the queue has no connection when its turn comes. It is passed over without a
/// grace, keeps its position, and is granted next when its connection is back.
///
/// Shows G-05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_without_connection_is_passed_over_and_keeps_its_position() {
    let server = Redis::start();
    let ours = open(&server.url(), "").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let (wire, away) = remote(&server, "").await;
    let first = wait_behind(&away, 0).await;
    let second = open(&server.url(), "").await;
    let third = open(&server.url(), "").await;
    let second = wait_behind(&second, 1).await;
    let third = wait_behind(&third, 2).await;
    cut_off(&wire);
    while server
        .command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"])
        .list()
        .len()
        > 3
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let released = Instant::now();
    held.release().await.expect("released");
    let second = granted(second).await;
    assert!(
        released.elapsed() < Duration::from_secs(3),
        "the second waiter waited for a grace: {:?}",
        released.elapsed()
    );
    wire.refuse(false);
    while server
        .command(&["PUBSUB", "CHANNELS", "leasehold:alive:*"])
        .list()
        .len()
        < 4
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    second.release().await.expect("released");
    let first = granted(first).await;
    assert!(!third.is_finished(), "two clients hold the lock");
    first.release().await.expect("released");
    granted(third).await.release().await.expect("released");
}
