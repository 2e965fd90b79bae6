//! Processes with clocks of their own, paused and killed; requests and replies that are lost one by
//! one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lab_redis_model::Host;
use lab_simulation::testbed::{Process, Redis, Wire};
use leasehold::{Guard, Lock, LossReason, Owner};
use leasehold_conformance::support::{waiters, within_timeout};
use tokio::time::{Instant, sleep};

use super::clients::{cut_off, open, remote, wait_behind};

/// The rates at which the clocks of the library may differ, in millionths.
const DRIFTS: [i64; 3] = [-250, 0, 250];

async fn acquire(lock: Lock) -> Guard {
    lock.acquire().await.expect("granted")
}

/// A process that is paused for longer than its lease has lost its hold when it goes on, whatever
/// the rate of its clock, and another process holds meanwhile.
///
/// Shows G-01, G-12.
#[tokio::test]
async fn hold_of_a_paused_process_is_lost_when_it_goes_on() {
    let server = Redis::start();
    for drift in DRIFTS {
        let process = Process::start(drift);
        let locks = open(&server.url(), "crash-grace=off").await;
        let lock = locks.mutex("a").lease(Duration::from_secs(30));
        let holder = process.spawn(async move {
            let guard = acquire(lock).await;
            let lost = guard.lost().await;
            (guard, lost)
        });
        sleep(Duration::from_secs(1)).await;
        process.pause();

        let theirs = open(&server.url(), "crash-grace=off").await;
        let next = acquire(theirs.mutex("a")).await;
        process.resume();
        let (late, reason) = holder.await.expect("it runs").expect("it lives");
        assert_eq!(reason, LossReason::RenewalTimedOut);
        assert!(late.release().await.expect_err("two hold").is_lost());
        next.check().expect("held");
        next.release().await.expect("released");
    }
}

/// A process is killed: its connection ends, and the waiter is granted after the grace, not at the
/// end of the lease.
///
/// Shows G-02.
#[tokio::test]
async fn waiter_is_granted_when_the_process_of_the_holder_is_killed() {
    let server = Redis::start();
    let process = Process::start(0);
    let url = server.url();
    let holder = process.spawn(async move {
        let locks = open(&url, "crash-grace=2s").await;
        let lock = locks.mutex("a").lease(Duration::from_secs(3_600));
        let _guard = acquire(lock).await;
        std::future::pending::<()>().await;
    });
    sleep(Duration::from_secs(1)).await;

    let next = open(&server.url(), "crash-grace=2s").await;
    let waiting = wait_behind(&next, 0).await;
    process.kill();
    assert_eq!(holder.await.expect("it runs"), None);
    let granted = within_timeout("the lock is granted", waiting).await;
    drop(granted.expect("it runs").expect("granted"));
}

/// A server changes its role twice, and its connections stay. Clients from before read its history
/// again once a minute. Otherwise those from after could not tell that they are gone.
///
/// Shows G-02.
#[tokio::test]
async fn change_of_roles_on_an_open_connection_is_noticed_within_a_minute() {
    let host = Host::start("0123456789");
    let server = Redis::of(Arc::clone(&host), "server");
    let process = Process::start(0);
    let url = server.url();
    process.spawn(async move {
        let locks = open(&url, "crash-grace=2s").await;
        let lock = locks.mutex("a").lease(Duration::from_secs(3_600));
        let _guard = acquire(lock).await;
        std::future::pending::<()>().await;
    });
    sleep(Duration::from_secs(1)).await;

    host.promote();
    let next = open(&server.url(), "crash-grace=2s").await;
    let waiting = wait_behind(&next, 0).await;
    sleep(Duration::from_secs(70)).await;
    process.kill();
    let granted = within_timeout("the lock is granted", waiting).await;
    drop(granted.expect("it runs").expect("granted"));
}

/// The hold of a process that cannot reach the server ends by its own clock before the server
/// grants the lock to another one, although the clock is as slow as the library allows for.
///
/// Shows G-01.
#[tokio::test]
async fn process_with_a_slow_clock_loses_its_hold_before_the_next_grant() {
    for drift in DRIFTS {
        let server = Redis::start();
        let wire = Wire::to(server.address());
        let process = Process::start(drift);
        let url = wire.url_of("redis");
        let holder = process.spawn(async move {
            let locks = open(&url, "crash-grace=off").await;
            let guard = acquire(locks.mutex("a").lease(Duration::from_secs(600))).await;
            guard.lost().await;
            Instant::now()
        });
        sleep(Duration::from_secs(1)).await;
        wire.refuse(true);
        wire.partition();

        let theirs = open(&server.url(), "crash-grace=off").await;
        let next = acquire(theirs.mutex("a")).await;
        let granted_at = Instant::now();
        let lost_at = holder.await.expect("it runs").expect("it lives");
        assert!(lost_at < granted_at, "two hold with {drift} millionths");
        drop(next);
    }
}

/// A client waits, holds for two renewals, and releases. In each second of it one request or one
/// reply is lost, and the client neither loses the lock nor leaves an entry.
///
/// Shows G-10, L5.
#[tokio::test]
async fn any_one_lost_message_leaves_no_entry() {
    for second in 0..26 {
        for lose in [Wire::drop_requests, Wire::drop_replies] {
            let server = Redis::start();
            let wire = Wire::to(server.address());
            let ours = open(&wire.url_of("redis"), "").await;
            let theirs = open(&server.url(), "").await;
            let held = acquire(theirs.mutex("a")).await;

            let lock = ours.mutex("a");
            let worker = tokio::spawn(async move {
                let guard = acquire(lock).await;
                sleep(Duration::from_secs(22)).await;
                guard.release().await.expect("released");
            });
            let releasing = tokio::spawn(async move {
                sleep(Duration::from_secs(2)).await;
                held.release().await.expect("released");
            });
            sleep(Duration::from_secs(second)).await;
            lose(&wire, 1);

            releasing.await.expect("released");
            worker.await.expect("it loses nothing");
            let next = theirs.mutex("a").try_acquire().await;
            drop(next.expect("it replies").expect("nothing is left"));
        }
    }
}

/// A writer is killed in front of a paused process whose readers wait. No client polls for the first
/// reader, and the renewals of another one, in each third of its lease, notice the absence. It polls
/// again when the absence has lasted for the grace.
///
/// Shows G-02.
#[tokio::test]
async fn waiter_behind_a_paused_process_takes_over_after_the_grace() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const LEASE: Duration = Duration::from_secs(12);
    let server = Redis::start();
    let (wire, gone) = remote(&server, "crash-grace=1s").await;
    let _held = acquire(gone.rwlock("a").exclusive().lease(HOUR)).await;
    let process = Process::start(0);
    let url = server.url();
    process.spawn(async move {
        let locks = open(&url, "crash-grace=1s").await;
        let reader = || acquire(locks.rwlock("a").shared().lease(HOUR));
        let _guards = join_all((0..6).map(|_| reader())).await;
    });
    let next = open(&server.url(), "crash-grace=1s").await;
    waiters(&next, "a", 6).await;
    process.pause();
    let waiting = tokio::spawn(acquire(next.rwlock("a").shared().lease(LEASE)));
    waiters(&next, "a", 7).await;

    let died = Instant::now();
    cut_off(&wire);
    let _reader = within_timeout("the reader is granted", waiting)
        .await
        .expect("it runs");
    let most = LEASE / 3 + Duration::from_secs(2);
    assert!(died.elapsed() < most, "after {:?}", died.elapsed());
}

/// An outage counts from its own beginning, and not from the opening of the store: a long pause of
/// the client must not prolong a short outage.
///
/// Shows G-26.
#[tokio::test]
async fn client_is_connected_soon_after_a_short_outage() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "crash-grace=off").await;
    for _ in 0..20 {
        sleep(Duration::from_secs(3_600)).await;
        let outage = Duration::from_millis(600);
        cut_off(&wire);
        sleep(outage).await;
        wire.refuse(false);

        let ended = Instant::now();
        locks.inspect("a").await.expect("it connects again");
        let most = outage / 10;
        assert!(ended.elapsed() < most, "after {:?}", ended.elapsed());
    }
}

/// An acquire waits for another task of its owner, which gives up, and then in the queue. Its limit
/// covers both waits.
///
/// Shows G-08.
#[tokio::test]
async fn limit_of_an_acquire_includes_the_wait_for_its_own_owner() {
    const LIMIT: Duration = Duration::from_secs(10);
    let server = Redis::start();
    let theirs = open(&server.url(), "").await;
    let held = acquire(theirs.mutex("a")).await;
    let lock = open(&server.url(), "").await.reentrant("a");
    let owner = Owner::new();
    let first = tokio::spawn(lock.acquire(&owner));
    waiters(&theirs, "a", 1).await;

    let begun = Instant::now();
    let gives_up = async {
        sleep(LIMIT / 2).await;
        first.abort();
    };
    let (refused, ()) = tokio::join!(lock.try_acquire_for(&owner, LIMIT), gives_up);
    assert!(refused.expect("the store replies").is_err());
    let took = begun.elapsed();
    assert!(took < LIMIT + Duration::from_secs(1), "{took:?}");
    held.release().await.expect("released");
}
