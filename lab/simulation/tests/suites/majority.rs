//! Masters that fail or forget while a majority remains, and a majority that forgets.
//!
//! Shows G-32, G-33, G-34, L8.

use std::time::Duration;

use lab_redis_model::{Reply, Restart};
use lab_simulation::testbed::{Redis, Wire};
use leasehold::{Guard, Locks, LossReason};
use tokio::time::{Instant, sleep, timeout};

use super::clients::open;

/// A format in which a master remembers no token.
const CLASSIC: &str = "dialect=classic";
const OWN: &str = "quarantine=off&longest-lease=5s";
const SOON: Duration = Duration::from_millis(20);

/// Starts five masters, each behind a wire.
async fn start(settings: &str) -> (Vec<Redis>, Vec<Wire>, Locks) {
    let masters: Vec<Redis> = (0..5).map(|_| Redis::start()).collect();
    let wires: Vec<Wire> = masters
        .iter()
        .map(|master| Wire::to(master.address()))
        .collect();
    let locks = open(&url(&wires), settings).await;
    (masters, wires, locks)
}

fn url(wires: &[Wire]) -> String {
    let urls: Vec<String> = wires.iter().map(|wire| wire.url_of("redlock")).collect();
    urls.join(",").replace(",redlock://", ",")
}

async fn acquire(locks: &Locks, seconds: u64) -> Guard {
    let lock = locks.mutex("a").lease(Duration::from_secs(seconds));
    lock.acquire().await.expect("granted")
}

/// Waits until every master has voted for the holder.
async fn wait_for_all(locks: &Locks) {
    let is_complete = async || {
        let state = locks.inspect("a").await.expect("most reply");
        let holders: Vec<_> = state.servers.iter().map(|view| view.holder).collect();
        holders.len() == 5
            && holders
                .iter()
                .all(|one| one.is_some() && *one == holders[0])
    };
    while !is_complete().await {
        sleep(SOON).await;
    }
}

/// A round does not wait for a silent master.
#[tokio::test]
async fn paused_minority_does_not_slow_acquires() {
    let (masters, _wires, locks) = start(OWN).await;
    for at in [1, 4] {
        masters[at].pause();
    }

    let begun = Instant::now();
    for _ in 0..50 {
        let held = acquire(&locks, 2).await;
        held.release().await.expect("three masters reply");
    }
    assert!(begun.elapsed() < SOON * 50, "{:?}", begun.elapsed());
}

/// A master that was away votes at the next renewal, so that a hold keeps its votes while masters
/// fail and return.
#[tokio::test]
async fn returning_master_votes_again_at_the_next_renewal() {
    let (mut masters, _wires, locks) = start(OWN).await;
    for at in [3, 4] {
        masters[at].kill();
    }
    let guard = acquire(&locks, 2).await;
    for at in [3, 4] {
        masters[at].restart(Restart::WithData);
    }
    survives_without_the_others(masters, &locks, guard).await;
}

/// The same in a format in which a master remembers no token.
#[tokio::test]
async fn restarted_master_gets_its_key_again() {
    is_given_again(|master| {
        master.kill();
        master.restart(Restart::Empty);
    })
    .await;
}

#[tokio::test]
async fn emptied_master_gets_its_key_again() {
    is_given_again(|master| drop(master.command(&["FLUSHALL"]))).await;
}

/// Lets two masters forget a hold, one after another: a majority must remember it at all times.
async fn is_given_again(forget: impl Fn(&mut Redis)) {
    let (mut masters, _wires, locks) = start(CLASSIC).await;
    let guard = acquire(&locks, 2).await;
    for at in [3, 4] {
        forget(&mut masters[at]);
        wait_for_all(&locks).await;
    }
    survives_without_the_others(masters, &locks, guard).await;
}

/// Kills two of the three masters that always had the votes. More than a lease later the claim
/// still holds the lock, by the restored votes.
async fn survives_without_the_others(mut masters: Vec<Redis>, locks: &Locks, guard: Guard) {
    wait_for_all(locks).await;
    for at in [0, 1] {
        masters[at].kill();
    }
    let lost = timeout(Duration::from_secs(5), guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    guard.release().await.expect("three masters reply");
}

/// Between the loss of a majority and the next renewal another claim may have held the lock. So the
/// hold is lost, and its votes are not restored.
#[tokio::test]
async fn hold_forgotten_by_majority_is_lost() {
    let (masters, _wires, locks) = start(CLASSIC).await;
    let held = acquire(&locks, 3).await;
    wait_for_all(&locks).await;
    for at in [0, 2, 4] {
        masters[at].command(&["FLUSHALL"]);
    }

    assert_eq!(held.lost().await, LossReason::Revoked);
    sleep(SOON).await;
    for master in &masters {
        assert_eq!(master.command(&["GET", "a"]), Reply::Nil);
    }
    drop(held);
    let tried = locks.mutex("a").try_acquire().await.expect("all reply");
    drop(tried.expect("the next client finds the lock free"));
}

/// A renewal leaves the key of another client alone, and that master's vote is lost.
#[tokio::test]
async fn key_of_another_client_is_not_overwritten() {
    let (masters, _wires, locks) = start(CLASSIC).await;
    let theirs = Reply::Bytes(b"theirs".to_vec());
    let held = acquire(&locks, 1).await;
    wait_for_all(&locks).await;
    masters[1].command(&["SET", "a", "theirs"]);

    let lost = timeout(Duration::from_secs(3), held.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(masters[1].command(&["GET", "a"]), theirs);
    held.release().await.expect("released");
    assert_eq!(masters[1].command(&["GET", "a"]), theirs);
}

/// A broken hold is not restored on any master, also if the masters receive the request at
/// different times.
#[tokio::test]
async fn broken_hold_is_not_granted_again() {
    let (masters, wires, locks) = start(CLASSIC).await;
    for wire in &wires[2..] {
        wire.delay(SOON);
    }
    let direct: Vec<Wire> = masters.iter().map(|one| Wire::to(one.address())).collect();
    let apart = open(&url(&direct), CLASSIC).await;
    for _ in 0..10 {
        let held = acquire(&locks, 5).await;
        wait_for_all(&locks).await;
        let broken = apart.break_hold("a", held.token()).await;
        assert!(broken.expect("all reply").is_some());
        assert_eq!(held.lost().await, LossReason::Revoked);
        drop(held);
        sleep(SOON * 10).await;
    }
}
