//! When a waiter detects that the holder has crashed, and what that costs.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Locks;
use leasehold_conformance::support::within_timeout;
use tokio::time::Instant;

use super::clients::{Waiting, cut_off, granted, open, remote, wait_behind, wait_with_lease};
use super::{Redis, received};

/// The server must receive a sign of life from a holder within the grace, which is shorter than the
/// lease. This holds for claims under crash detection. A claim that is not renewed lasts for its
/// lease, although its client is cut off.
///
/// Shows G-13, G-14.
#[tokio::test]
async fn hold_survives_beyond_the_grace() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=500ms").await;
    let (wire, cut) = remote(&server, "crash-grace=500ms").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    let fixed = cut.mutex("b").no_renewal();
    let fixed = fixed.acquire().await.expect("granted");
    cut_off(&wire);

    let wait = Duration::from_secs(2);
    let tries = ["a", "b"].map(|name| locks.mutex(name).try_acquire_for(wait));
    for tried in join_all(tries).await {
        tried.expect("replied").expect_err("it is held");
    }
    held.check().expect("still held");
    fixed.check().expect("its lease has not ended");
}

/// The waiter's grace is shorter than the grace that the holder counts on. By its own grace the
/// waiter would take the lock while it is held.
///
/// Shows G-01.
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
///
/// Shows G-02, L1.
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

/// A client that tries again and again observes the absence for the grace, although no claim of it
/// waits. The lease lasts for 30 s.
///
/// Shows G-02.
#[tokio::test]
async fn tries_of_one_client_detect_a_crash() {
    let server = Redis::start();
    let locks = open(&server.url(), "crash-grace=1s").await;
    let (wire, crashing) = remote(&server, "crash-grace=1s").await;
    let _held = crashing.mutex("a").acquire().await.expect("granted");
    cut_off(&wire);

    let begun = Instant::now();
    let lock = locks.mutex("a");
    while lock.try_acquire().await.expect("replied").is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "noticed late");
}

/// A crashed holder is found among many holders.
///
/// Shows G-02.
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

/// The first `dead` of the waiters die together with the holder. The next waiter takes over within
/// the grace and 2 s for each position, or within a third of its lease where that is less. Returns
/// the time, and the number of requests sent.
async fn takeover_behind(dead: usize) -> (Duration, u64) {
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=1s").await;
    let _held = gone.mutex("a").acquire().await.expect("granted");
    let mut dying = Vec::new();
    for ahead in 0..dead {
        let (wire, client) = remote(&server, "crash-grace=1s").await;
        dying.push((wait_behind(&client, ahead).await, wire, client));
    }
    let next = open(&server.url(), "crash-grace=1s").await;
    let waiting = wait_behind(&next, dead).await;
    // The server receives no new state from the waiters after this pause.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = received(&server);
    let died = Instant::now();
    cut_off(&wire);
    for (_, wire, _) in &dying {
        cut_off(wire);
    }
    let guard = granted(waiting).await;
    let took = died.elapsed();
    let sent = received(&server) - before;
    guard.release().await.expect("released");
    for (waiting, ..) in &dying {
        waiting.abort();
    }
    (took, sent)
}

/// Shows G-02.
#[tokio::test]
async fn waiter_takes_over_when_the_first_die_with_the_holder() {
    // The test measures by its own clock, on a machine that other processes use too.
    const BUSY: Duration = Duration::from_secs(2);
    for dead in [0usize, 1, 2] {
        let (took, sent) = takeover_behind(dead).await;
        let looks = if dead == 0 {
            0
        } else {
            2 * (u64::try_from(dead).expect("few") + 1)
        };
        let most = Duration::from_millis(1_600) + Duration::from_secs(looks) + BUSY;
        assert!(took <= most, "{took:?} with {dead} dead");
        assert!(sent <= 40, "{sent} requests in {took:?} with {dead} dead");
    }
}

/// Behind more dead waiters, the waiter's renewal in each third of its lease detects the crash.
///
/// Shows G-02.
#[tokio::test]
async fn renewal_of_a_waiter_far_behind_notices_the_crash() {
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=1s").await;
    let _held = gone
        .mutex("a")
        .lease(Duration::from_secs(300))
        .acquire()
        .await
        .expect("granted");
    let mut dying = Vec::new();
    for ahead in 0..5 {
        dying.push(wait_with_lease(&gone, ahead, Duration::from_secs(300)).await);
    }
    let next = open(&server.url(), "crash-grace=1s").await;
    let waiting = wait_with_lease(&next, 5, Duration::from_secs(12)).await;
    let died = Instant::now();
    cut_off(&wire);
    let guard = granted(waiting).await;
    // The grace, a third of the lease, and the time that a busy machine adds.
    assert!(
        died.elapsed() < Duration::from_millis(1_600 + 4_000 + 2_000),
        "{:?}",
        died.elapsed()
    );
    guard.release().await.expect("released");
    dying.iter().for_each(Waiting::abort);
}

/// A grant that comes long after the last message of the waiter is confirmed before it counts. The
/// grace decides the end of a hold, but the server kept the waiting claim for its lease.
///
/// Shows G-01.
#[tokio::test]
async fn hold_of_a_waiter_counts_for_the_grace_not_for_its_lease() {
    let server = Redis::start();
    let ours = open(&server.url(), "crash-grace=1s").await;
    let theirs = open(&server.url(), "crash-grace=1s").await;
    let held = ours.mutex("a").acquire().await.expect("granted");
    let waiting = wait_with_lease(&theirs, 0, Duration::from_secs(3600)).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    held.release().await.expect("released");
    let next = granted(waiting).await;
    let left = next.remaining();
    assert!(left <= Duration::from_secs(1), "trusted for {left:?}");
    next.check().expect("held");
}
