//! Processes with clocks of their own, paused and killed; requests and replies that are lost one by
//! one.

use std::time::Duration;

use lab_simulation::testbed::{Process, Redis, Wire};
use leasehold::{Guard, Lock, LossReason};
use leasehold_conformance::support::within_timeout;
use tokio::time::sleep;

use super::clients::{open, wait_behind};

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
            tokio::time::Instant::now()
        });
        sleep(Duration::from_secs(1)).await;
        wire.refuse(true);
        wire.partition();

        let theirs = open(&server.url(), "crash-grace=off").await;
        let next = acquire(theirs.mutex("a")).await;
        let granted_at = tokio::time::Instant::now();
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
