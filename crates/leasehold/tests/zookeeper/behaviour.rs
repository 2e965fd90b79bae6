//! Claims, tokens, sessions and waiters.

use std::time::Duration;

use lab_servers::{Traffic, Wire, ZooKeeper};
use leasehold::LossReason;
use leasehold::store::replies::released_within;
use leasehold::store::{OnContention, Store};
use tokio::task::JoinSet;
use tokio::time::Instant;
use zookeeper_client::{Acls, CreateMode};

use crate::{
    SERVER, claim, connect_store, empty, held_for, is_free, open, open_folder, plain_client,
    use_once, waiters, within_timeout,
};

/// A claim without a reply to its first request is found by its id, and only once.
///
/// Shows G-10.
#[tokio::test]
async fn claim_with_lost_reply_is_found_once() {
    let wire = Wire::to(SERVER.address());
    let ours = open(&format!("{}/lost?session=3s", wire.url_of("zookeeper"))).await;
    let theirs = open_folder("lost").await;
    for _ in 0..10 {
        wire.drop_replies(1);
        let held = within_timeout("granted", ours.mutex("a").acquire())
            .await
            .expect("granted");

        let lock_state = theirs.inspect("a").await.expect("inspected");
        assert_eq!(lock_state.entries.len(), 1);
        assert_eq!(lock_state.last_token, Some(held.token()));
        held.release().await.expect("released");
        empty(&theirs, "a").await;
    }
}

/// A request without a reply may be executed after the claim has entered again or left, which takes
/// two requests here: another client creates such nodes.
///
/// Shows G-10.
#[tokio::test]
async fn late_nodes_of_a_claim_that_left_are_removed() {
    let wire = Wire::to(SERVER.address());
    let theirs = open_folder("late").await;
    use_once(&theirs, "a").await;
    let store = connect_store(&format!("{}/late?session=1s", wire.url_of("zookeeper"))).await;
    let claim = claim("a");
    let client = plain_client(&SERVER).await;

    wire.freeze(true);
    let entering = store.enter(&claim, OnContention::Queue);
    let lost = tokio::time::timeout(Duration::from_millis(50), entering).await;
    assert!(lost.is_err(), "a reply arrived: {lost:?}");
    wire.partition();
    wire.freeze(false);
    let entered = async { while store.enter(&claim, OnContention::Queue).await.is_err() {} };
    within_timeout("the claim enters", entered).await;

    let nodes = client.list_children("/late/a").await.expect("listed");
    let prefix = nodes[0].trim_end_matches(|digit: char| digit.is_ascii_digit());
    for is_held in [true, false, false] {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = client
            .create(&format!("/late/a/{prefix}"), b"", &options)
            .await;
        created.expect("created");
        if is_held {
            wire.freeze(true);
            let leaving = tokio::time::timeout(Duration::from_millis(50), store.leave(&claim));
            leaving.await.expect_err("a reply arrived");
            wire.freeze(false);
            assert!(store.leave(&claim).await.expect("left"));
        }
        empty(&theirs, "a").await;
    }
}

/// The holder releases between the two round trips of an inspection.
///
/// Shows G-18.
#[tokio::test]
async fn inspection_shows_waiters_behind_a_holder_that_leaves_meanwhile() {
    let wire = Wire::to(SERVER.address());
    let ours = open(&format!("{}/vanished", wire.url_of("zookeeper"))).await;
    let theirs = open_folder("vanished").await;
    let held = theirs.mutex("a").acquire().await.expect("granted");
    let waiting = tokio::spawn(theirs.mutex("a").acquire());
    waiters(&theirs, "a", 1).await;

    wire.hold_replies(true);
    let released = async {
        while wire.traffic().waiting_to_client == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        held.release().await.expect("released");
        wire.hold_replies(false);
    };
    let (lock_state, ()) = tokio::join!(ours.inspect("a"), released);
    assert_eq!(lock_state.expect("inspected").entries.len(), 1);
    let next = within_timeout("the waiter holds", waiting).await;
    let _next = next.expect("it runs").expect("granted");
}

/// The first hold of a session does not wait for the next heartbeat of an idle one. That heartbeat
/// opens another connection, which measures the servers' tick, until this succeeds.
///
/// Shows G-24.
#[tokio::test]
async fn first_hold_measures_the_tick_at_once_and_until_it_succeeds() {
    const SESSION: Duration = Duration::from_secs(6);
    let wire = Wire::to(SERVER.address());
    let locks = open(&format!("{}/first?session=6s", wire.url_of("zookeeper"))).await;
    wire.refuse(true);
    let begun = Instant::now();
    let _held = locks.mutex("a").acquire().await.expect("granted");

    let traffic = async |is_meant: fn(Traffic) -> bool| {
        while !is_meant(wire.traffic()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within_timeout("one is refused", traffic(|traffic| traffic.refused > 0)).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(1_200), "{took:?}");
    // The measurement ends with an error, because it takes no longer than a session.
    tokio::time::sleep(SESSION).await;
    wire.refuse(false);
    within_timeout("it measures", traffic(|traffic| traffic.connections > 1)).await;
}

/// A proof of the session is half a tick old. The servers' shortest session has two ticks.
///
/// A client that waits for longer than its session before it uses a new folder has proofs too.
///
/// Shows G-12.
#[tokio::test]
async fn hold_is_not_valid_for_longer_than_heartbeats_prove() {
    const SESSION: Duration = Duration::from_secs(1);
    const HALF_TICK: Duration = Duration::from_millis(250);
    let url = |folder: &str| format!("{}/{folder}?session=1s", SERVER.url());
    let idle = connect_store(&url("proved-idle")).await;
    let store = connect_store(&url("proved")).await;
    let opened = Instant::now();
    let claim = claim("a");
    let entered = store.enter(&claim, OnContention::Queue).await;
    entered.expect("granted");

    let claims = std::slice::from_ref(&claim);
    while opened.elapsed() < SESSION {
        let sent = Instant::now();
        let renewed = store.renew(claims).await;
        let replied = Instant::now();
        // On a busy machine the session may end.
        let Ok([Some(remaining)]) = renewed.as_deref() else {
            continue;
        };
        let remaining = remaining.saturating_sub(replied - sent);
        let proof = HALF_TICK.min(replied - opened);
        assert!(
            remaining <= SESSION.saturating_sub(proof),
            "{remaining:?} after {proof:?}"
        );
    }
    // A session without proofs ends here, and a new one follows a second later.
    let entering = idle.enter(&claim, OnContention::Queue);
    let entered = tokio::time::timeout(Duration::from_millis(800), entering).await;
    entered.expect("the session is proved").expect("granted");
}

/// The time that a `sync` takes is not a part of half a tick between a write and the `sync` that
/// proves it. With the delays, a proof is a write, half a tick, a `sync` and a write old.
///
/// Shows G-12.
#[tokio::test]
async fn delayed_replies_prove_no_newer_write() {
    const SESSION: Duration = Duration::from_secs(2);
    const DELAY: Duration = Duration::from_millis(100);
    const HALF_TICK: Duration = Duration::from_millis(250);
    let round_trip = 2 * DELAY;
    let proof = round_trip + HALF_TICK + round_trip + round_trip;

    let wire = Wire::to(SERVER.address());
    wire.delay(DELAY);
    let url = format!("{}/delayed?session=2s", wire.url_of("zookeeper"));
    let store = connect_store(&url).await;
    let claim = claim("a");
    let entered = store.enter(&claim, OnContention::Queue).await;
    entered.expect("granted");

    // Half a tick is measured meanwhile. Before that, proofs are older.
    let begun = Instant::now();
    while begun.elapsed() < 3 * SESSION {
        let sent = Instant::now();
        let renewed = store.renew(std::slice::from_ref(&claim)).await;
        let replied = Instant::now();
        // On a busy machine the session may end.
        let Ok([Some(remaining)]) = renewed.as_deref() else {
            continue;
        };
        let remaining = remaining.saturating_sub(replied - sent);
        assert!(remaining + proof <= SESSION, "{remaining:?}");
    }
}

/// The servers agree to twenty ticks at most.
///
/// Shows G-15.
#[tokio::test]
async fn crash_release_follows_from_the_session_that_the_servers_agree_to() {
    let store = connect_store(&format!("{}/agreed?session=60s", SERVER.url())).await;
    let agreed = released_within(Duration::from_secs(10));
    assert_eq!(store.guarantees().crash_release, agreed);
}

/// The token of a grant is the number of the transaction that created its node. It increases also
/// when the lock's node was removed and the sequence numbers start again.
///
/// Shows G-04.
#[tokio::test]
async fn tokens_increase_over_a_deleted_lock_node() {
    let locks = open_folder("cleared").await;
    let client = plain_client(&SERVER).await;
    let first = use_once(&locks, "a").await;
    let deleted = client.delete("/cleared/a", None).await;
    deleted.expect("the queue is empty");

    let second = locks.mutex("a").acquire().await.expect("granted");
    let nodes = client.list_children("/cleared/a").await.expect("listed");
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert!(nodes[0].ends_with("-lock-0000000000"), "{nodes:?}");

    let path = format!("/cleared/a/{}", nodes[0]);
    let stat = client.check_stat(&path).await.expect("read");
    let created = stat.expect("it exists").czxid;
    assert_eq!(second.token().get().cast_signed(), created);
    assert!(second.token() > first);
}

/// The servers remove the lock's node when it is empty, and the next claim creates it again. In
/// kazoo's layout the node stays.
///
/// Shows G-27, G-30.
#[tokio::test]
async fn empty_lock_nodes_are_removed() {
    let server = ZooKeeper::setup()
        .property("znode.container.checkIntervalMs", "100")
        .start();
    let kazoo = open(&format!("{}/kazoo?dialect=kazoo", server.url())).await;
    use_once(&kazoo, "a").await;
    let locks = open(&format!("{}/locks", server.url())).await;
    let client = plain_client(&server).await;

    // The servers look for empty nodes again and again. The second time they have seen all.
    for _ in 0..2 {
        use_once(&locks, "a").await;
        let removed = async {
            while client.check_stat("/locks/a").await.expect("read").is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within_timeout("the node is removed", removed).await;
    }
    let kept = client.check_stat("/kazoo/a").await.expect("read");
    assert!(kept.is_some(), "clients of kazoo rely on it");
}

/// A session keeps the lease, so a lease may be longer than the session, renewed or fixed.
///
/// Shows G-14.
#[tokio::test]
async fn fixed_lease_can_outlast_the_session_timeout() {
    let locks = open(&format!("{}/fixed?session=3s", SERVER.url())).await;
    let lock = locks.mutex("a").lease(Duration::from_secs(6)).no_renewal();
    let held = lock.acquire().await.expect("granted");
    held_for(&held, Duration::from_secs(5)).await;

    let lost = within_timeout("the lease ends", held.lost()).await;
    assert_eq!(lost, LossReason::LeaseExpired);
    let next = within_timeout("the next holds", locks.mutex("a").acquire()).await;
    let _next = next.expect("granted");
}

/// A server without replies ends the validity of a hold before the session can end.
///
/// Shows G-12.
#[tokio::test]
async fn unresponsive_server_ends_the_hold_in_time() {
    let server = ZooKeeper::start();
    let locks = open(&format!("{}?session=4s", server.url())).await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    assert!(held.remaining() <= Duration::from_secs(4));

    server.pause();
    let lost = within_timeout("the hold is lost", held.lost()).await;
    assert_eq!(lost, LossReason::RenewalTimedOut);
    server.resume();
    let later = within_timeout("a later claim is granted", locks.mutex("a").acquire()).await;
    let _later = later.expect("granted");
}

/// A client opens a new session when one has ended. The holds of the old one are lost.
#[tokio::test]
async fn ended_session_is_replaced() {
    let server = ZooKeeper::start();
    let wire = Wire::to(server.address());
    let theirs = open(&server.url()).await;
    let ours = open(&format!("{}?session=1s", wire.url_of("zookeeper"))).await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    wire.refuse(true);
    wire.partition();
    within_timeout("the hold is lost", held.lost()).await;

    let next = within_timeout("the next holds", theirs.mutex("a").acquire())
        .await
        .expect("granted");
    assert!(next.token() > held.token());

    wire.refuse(false);
    let lock = ours.mutex("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    within_timeout("it waits again", waiters(&theirs, "a", 1)).await;
    next.release().await.expect("released");
    let later = within_timeout("it holds again", waiting).await;
    let _later = later.expect("it runs").expect("granted");
}

/// A reconnect within the session keeps the lock and the position in the queue.
///
/// Shows G-05, G-13, G-25.
#[tokio::test]
async fn lock_survives_disconnect_shorter_than_grace() {
    let wire = Wire::to(SERVER.address());
    let ours = open(&format!("{}/break", wire.url_of("zookeeper"))).await;
    let theirs = open_folder("break").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let other = theirs.mutex("b").acquire().await.expect("granted");
    let lock = ours.mutex("b");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waiters(&theirs, "b", 1).await;
    let later = theirs.mutex("b");
    let behind = tokio::spawn(async move { later.acquire().await });
    waiters(&theirs, "b", 2).await;

    for _ in 0..3 {
        wire.partition();
        held_for(&held, Duration::from_millis(500)).await;
    }
    wire.partition();
    other.release().await.expect("released");
    let first = within_timeout("the first waiter holds", waiting)
        .await
        .expect("it runs")
        .expect("granted");
    assert!(!behind.is_finished());

    first.release().await.expect("released");
    let second = within_timeout("the second waiter holds", behind).await;
    let _second = second.expect("it runs").expect("granted");
}

/// A release wakes one waiter, for any number of waiters: each grant is one notification.
///
/// Shows G-31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_are_woken_one_by_one() {
    const WAITERS: u64 = 200;
    let server = ZooKeeper::setup().tick(1_000).start();
    let locks = open(&server.url()).await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let mut waiting = JoinSet::new();
    for at in 1..=WAITERS {
        let lock = locks.mutex("a");
        waiting.spawn(async move {
            let held = lock.acquire().await.expect("granted");
            let token = held.token();
            held.release().await.expect("released");
            (token, at)
        });
        waiters(&locks, "a", usize::try_from(at).expect("few")).await;
    }

    let deletions = server.count("zk_sum_node_deleted_watch_count");
    let children = server.count("zk_sum_node_children_watch_count");
    held.release().await.expect("released");
    let mut order = Vec::new();
    while let Some(done) = within_timeout("all are granted", waiting.join_next()).await {
        order.push(done.expect("no task fails"));
    }
    order.sort_unstable();
    assert!(order.iter().map(|(_, at)| *at).eq(1..=WAITERS), "{order:?}");

    let deletions = server.count("zk_sum_node_deleted_watch_count") - deletions;
    assert_eq!(deletions, WAITERS);
    assert_eq!(server.count("zk_sum_node_children_watch_count"), children);
}

/// Only clients with the same user and password may use the nodes.
///
/// Shows G-28.
#[tokio::test]
async fn private_nodes_are_denied_to_others() {
    let url = |user: &str| {
        let server = SERVER.address();
        format!("zookeeper://{user}:secret@{server}/private?acl=creator")
    };
    let ours = open(&url("me")).await;
    let theirs = open(&url("you")).await;
    let held = ours.mutex("a").acquire().await.expect("granted");

    let tried = theirs.mutex("a").try_acquire().await;
    let broken = theirs.break_hold("a", held.token()).await;
    for error in [tried.expect_err("denied"), broken.expect_err("denied")] {
        assert!(error.is_denied(), "{error:?}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    assert!(!is_free(&open(&url("me")).await, "a").await);
    held_for(&held, Duration::from_secs(3)).await;
}
