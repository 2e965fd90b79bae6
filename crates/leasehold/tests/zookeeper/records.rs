//! The records of jobs that run once: lost replies, rights, other versions, and old ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{try_join, try_join_all};
use lab_servers::{Wire, ZooKeeper};
use leasehold::store::{OnContention, Records as _, Store as _};
use leasehold::{Completion, Locks};
use zookeeper_client::{Acls, CreateMode, Error};

use crate::{SERVER, claim, connect_store, empty, open, open_folder, plain_client, within_timeout};

async fn complete(locks: &Locks, id: &str) {
    let acquired = within_timeout("granted", locks.once("a").id(id).acquire()).await;
    let guard = acquired.expect("granted").expect("it is not done");
    guard.complete().await.expect("it is recorded");
}

async fn is_done(locks: &Locks, id: &str) -> bool {
    let acquired = within_timeout("granted", locks.once("a").id(id).acquire()).await;
    acquired.expect("granted").is_err()
}

/// A client whose completion has no reply finds its node gone and itself in the record.
///
/// Shows G-58.
#[tokio::test]
async fn completion_without_a_reply_is_recorded_once() {
    let wire = Wire::to(SERVER.address());
    let ours = open(&format!("{}/unanswered", wire.url_of("zookeeper"))).await;
    let theirs = open_folder("unanswered").await;
    let recorded = async || theirs.record("a").await.expect("read").completions.len();
    wire.delay(Duration::from_millis(50));

    let mut jobs = 0;
    let mut lost_replies = 0;
    while lost_replies < 4 {
        jobs += 1;
        let id = jobs.to_string();
        let acquired = within_timeout("granted", ours.once("a").id(&id).acquire()).await;
        let guard = acquired.expect("granted").expect("it is not done");
        let completing = tokio::spawn(guard.complete());

        // The reply is still under way when others see the record.
        within_timeout("recorded", async { while recorded().await < jobs {} }).await;
        wire.partition();
        lost_replies += usize::from(!completing.is_finished());

        let completed = within_timeout("completed", completing).await;
        completed.expect("it ran").expect("it is recorded");
        assert_eq!(recorded().await, jobs);
        empty(&theirs, "a").await;
    }
}

/// A request to complete is repeated while the first one is still under way. Whatever the servers
/// execute in between, both find the completion.
///
/// Shows G-16, G-58.
#[tokio::test]
async fn completion_that_is_repeated_at_the_same_time_is_recorded() {
    let wire = Wire::to(SERVER.address());
    let [first, repeated] = [SERVER.url(), wire.url_of("zookeeper")]
        .map(|url| async move { connect_store(&format!("{url}/repeated")).await });
    let (first, repeated) = tokio::join!(first, repeated);
    let claims: Vec<_> = (0..20).map(|number| claim(&number.to_string())).collect();
    let entering = claims
        .iter()
        .map(|claim| first.enter(claim, OnContention::Fail));
    let entered = try_join_all(entering).await.expect("entered");

    // The requests of a step arrive some milliseconds apart.
    wire.tiny_segments(true);
    for ((claim, entered), round) in claims.iter().zip(entered).zip(0..) {
        let token = entered.standing.token().expect("granted");
        let completion = Completion::success(claim, token, SystemTime::now());
        let beginning = async {
            tokio::time::sleep(Duration::from_micros(200) * round).await;
            first.complete(claim, &completion).await
        };
        let both = try_join(repeated.complete(claim, &completion), beginning).await;
        assert_eq!(both.expect("they reply"), (true, true), "round {round}");
    }
}

/// The record is no child of the lock's node, so that the node stays a queue of claims, and that
/// the servers remove it. All times in it are those of the server.
///
/// Shows G-58.
#[tokio::test]
async fn record_is_beside_the_locks_and_has_the_times_of_the_server() {
    let server = ZooKeeper::setup().own_clock().start();
    server.clock().set(DAY * 400);
    let locks = open(&server.url()).await;
    complete(&locks, "1").await;

    let client = plain_client(&server).await;
    // The servers may have removed the empty node by now.
    match client.list_children("/leasehold/a").await {
        Ok(children) => assert!(children.is_empty(), "{children:?}"),
        Err(error) => assert_eq!(error, Error::NoNode),
    }
    let (data, stat) = client
        .get_data("/leasehold/%records/a")
        .await
        .expect("read");
    assert_eq!((&data[..3], stat.ephemeral_owner), (&b"v1\n"[..], 0));
    let record = locks.record("a").await.expect("read");
    let last = record.last_success().expect("one");
    let ahead = |time: SystemTime| {
        let ahead = time.duration_since(SystemTime::now());
        ahead.expect("it is ahead").as_secs() / DAY.unsigned_abs()
    };
    assert_eq!(
        [last.started_at, last.ended_at, record.read_at].map(ahead),
        [399; 3]
    );

    // A server whose clock went back by more than a minute does not stop the job until then.
    server.clock().set(DAY * 300);
    assert!(!is_done(&locks, "1").await);
}

/// A record is kept for its time after its last use; then it counts as none, and is removed.
///
/// Shows G-58.
#[tokio::test]
async fn old_records_count_as_none_and_are_removed() {
    let server = ZooKeeper::setup().own_clock().start();
    let url = format!("{}?records=2d", server.url());
    let store = Arc::new(connect_store(&url).await);
    let locks = Locks::from_arc(store, "zookeeper:").expect("it runs");
    complete(&locks, "1").await;
    server.clock().set(DAY + 60);
    assert!(is_done(&locks, "1").await, "this is a use");
    server.clock().set(DAY * 2 + 60);
    assert_eq!(locks.remove_unused().await.expect("removed").removed, 0);
    assert!(
        locks
            .record("a")
            .await
            .expect("read")
            .last_success()
            .is_some()
    );

    server.clock().set(DAY * 4);
    assert!(
        locks
            .record("a")
            .await
            .expect("read")
            .last_success()
            .is_none()
    );
    // A client that does not run the job leaves the old record as it is: meanwhile, another one may
    // have put a new record in its place.
    let client = plain_client(&server).await;
    let path = "/leasehold/%records/a";
    let (old, stat) = client.get_data(path).await.expect("read");
    assert!(!is_done(&locks, "1").await);
    let (left, left_stat) = client.get_data(path).await.expect("read");
    assert_eq!((left, left_stat.version), (old, stat.version));
    complete(&locks, "1").await;
    assert!(is_done(&locks, "1").await);
    server.clock().set(DAY * 7);
    assert_eq!(locks.remove_unused().await.expect("removed").removed, 1);
    assert!(locks.list_records("", 10).await.expect("listed").is_empty());
    complete(&locks, "1").await;
}

/// A client looks at an old record, another one removes it, and a job creates it again, with the
/// same version, before the first one removes what it has seen.
///
/// Shows G-58.
#[tokio::test]
async fn record_that_was_created_again_is_not_removed() {
    let server = ZooKeeper::setup().own_clock().start();
    let locks = open(&format!("{}?records=2d", server.url())).await;
    complete(&locks, "1").await;
    server.clock().set(DAY * 4);
    let wire = Wire::to(server.address());
    let late = open(&format!("{}?records=2d", wire.url_of("zookeeper"))).await;
    late.list_records("", 1).await.expect("it has a session");

    // The replies to its look are held: each look begins with a write to the folder.
    let client = plain_client(&server).await;
    let watched = client.get_and_watch_data("/leasehold/%records").await;
    let (_, _, written) = watched.expect("watched");
    wire.delay(Duration::from_secs(1));
    let removing = tokio::spawn(async move { late.remove_unused().await });
    written.changed().await;
    wire.hold_replies(true);
    wire.delay(Duration::ZERO);

    assert_eq!(locks.remove_unused().await.expect("removed").removed, 1);
    complete(&locks, "2").await;
    wire.hold_replies(false);
    let removed = removing.await.expect("no panic").expect("it looked");
    assert_eq!(removed.removed, 0);
    assert!(is_done(&locks, "2").await);
}

/// A record that this version cannot read is an error, and stays as it is.
///
/// Shows G-58.
#[tokio::test]
async fn record_of_another_version_is_refused() {
    let client = plain_client(&SERVER).await;
    let locks = open_folder("versions").await;
    complete(&locks, "1").await;
    for (data, is_newer) in [(&b"v2\nx\n"[..], true), (b"\xff", false), (b"", false)] {
        let path = "/versions/%records/a";
        client.set_data(path, data, None).await.expect("written");
        let tried = locks.once("a").id("1").try_acquire().await;
        for error in [
            locks.record("a").await.expect_err("it is not read"),
            tried.expect_err("it is not read"),
        ] {
            assert_eq!(
                (error.is_unsupported(), error.is_damaged()),
                (is_newer, !is_newer)
            );
            assert!(error.to_string().contains("\"a\""), "{error}");
        }
        assert_eq!(client.get_data(path).await.expect("read").0, data);
        empty(&locks, "a").await;
    }
}

/// The records have the rights of the locks.
///
/// Shows G-29, G-58.
#[tokio::test]
async fn records_have_the_rights_of_the_locks() {
    let url = |user: &str, setting: &str| {
        let address = SERVER.address();
        format!("zookeeper://{user}:pw@{address}/records-of-a-user{setting}")
    };
    let client = plain_client(&SERVER).await;
    let open_to_all = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let created = client.create("/records-of-a-user", b"", &open_to_all).await;
    created.expect("created");
    let ours = open(&url("us", "?acl=creator")).await;
    complete(&ours, "1").await;
    assert!(is_done(&ours, "1").await);
    let theirs = open(&url("them", "")).await;
    let error = theirs.record("a").await.expect_err("it is not theirs");
    assert!(error.is_denied(), "{error}");
    assert!(
        error.to_string().contains("/records-of-a-user/%records"),
        "{error}"
    );
}

/// An observer without the right to write reads the records without the time of the leader.
///
/// Shows G-29, G-58.
#[tokio::test]
async fn records_can_be_read_without_the_right_to_write() {
    let client = plain_client(&SERVER).await;
    let locks = open_folder("read-only-records").await;
    complete(&locks, "1").await;
    for node in ["%records/a", "%records"] {
        let path = format!("/read-only-records/{node}");
        let limited = client.set_acl(&path, &Acls::anyone_read(), None).await;
        limited.expect("limited");
    }

    let record = locks.record("a").await.expect("read");
    assert_eq!(record.last_success().expect("one").id, "1");
    let record = locks.record("b").await.expect("read");
    assert!(record.last_success().is_none());
    let tried = locks.once("a").id("1").try_acquire().await;
    let error = tried.expect_err("a use is written");
    assert!(error.is_denied(), "{error}");
}

/// In seconds.
const DAY: i64 = 24 * 3_600;
