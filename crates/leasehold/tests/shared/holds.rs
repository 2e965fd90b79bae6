//! When a hold begins, and when its loss is reported.

use std::time::Duration;

use leasehold_conformance::support::{eventually, waiters, within_timeout};
use tokio::time::Instant;

use super::Redis;
use super::clients::{granted, open, remote, use_once, wait_with_lease};

/// The reply with a grant took longer than the client may trust it. The client confirms the grant
/// with another request before it returns the guard. node-redlock returns such a lock.
///
/// Shows S4.
#[tokio::test]
async fn late_grant_is_confirmed_before_it_is_returned() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=500ms").await;
    // The server learns the script.
    use_once(&locks.mutex("b")).await;
    wire.hold_replies(true);
    let lock = locks.mutex("a");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    eventually("the lock is granted", || async {
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
///
/// Shows G-12.
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
    eventually("the hold ends", || async { held.check().is_err() }).await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

/// A hold that the server has forgotten ends long before a third of a long lease. If a notification
/// has granted it, the first renewal finds that out.
///
/// Shows G-12.
#[tokio::test]
async fn forgotten_hold_is_reported_lost_soon() {
    const HOUR: Duration = Duration::from_secs(3600);
    let server = Redis::start();
    for (grace, is_pushed) in [("500ms", false), ("5s", true)] {
        let locks = open(&server.url(), &format!("crash-grace={grace}")).await;
        let lock = locks.mutex("a").lease(HOUR);
        let mut held = lock.acquire().await.expect("granted");
        if is_pushed {
            let waiting = wait_with_lease(&locks, 0, HOUR).await;
            held.release().await.expect("released");
            held = granted(waiting).await;
        }
        server.command(&["FLUSHALL"]);
        eventually("the hold ends", || async { held.check().is_err() }).await;
    }
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
