//! Holds on servers that refuse writes or publish nothing, and after a reconnect.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use lab_servers::{Redis, Wire};
use leasehold::LossReason;
use leasehold_conformance::support::{waiters, within_timeout};

use tokio::time::timeout;

use super::{commands, monitor, open};

/// A server that refuses writes also refuses renewals, although it sends replies. The hold ends
/// before its lease does.
///
/// Shows G-12.
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

/// A writer becomes a reader, and its connections break while its loss is awaited. The client
/// remembers the share of the writer. The server must not refuse the claim for it.
///
/// Shows G-07.
#[tokio::test]
async fn downgraded_hold_is_refreshed_after_a_reconnect() {
    let server = Redis::start();
    let locks = open(&server.url(), "").await;
    let lock = locks.rwlock("a").exclusive();
    let held = lock.acquire().await.expect("granted");
    held.downgrade().await.expect("downgraded");

    let mut monitor = monitor(&server);
    let mut lost = pin!(held.lost());
    assert!(poll!(&mut lost).is_pending());
    server.command(&["CONFIG", "RESETSTAT"]);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let refreshed = async {
        while !commands(&server, &mut monitor)
            .iter()
            .any(|command| is_refresh(command))
        {
            let lost = timeout(Duration::from_millis(5), &mut lost).await;
            assert!(lost.is_err(), "{lost:?}");
        }
    };
    within_timeout("the claim is refreshed", refreshed).await;

    let stats = server.info("commandstats");
    let scripts = stats
        .lines()
        .find(|line| line.contains("cmdstat_evalsha"))
        .expect("a script has run");
    assert!(scripts.contains("failed_calls=0"), "{scripts}");
    let other = locks.rwlock("a").shared().try_acquire().await;
    drop(other.expect("it replies").expect("readers share"));
}

/// Whether a command, as MONITOR shows it, refreshes a claim: its settings are `F`, the last token,
/// and more.
fn is_refresh(command: &str) -> bool {
    let settings = command.split(" \"F").nth(1).unwrap_or_default();
    settings.len() > 16 && settings.as_bytes()[..16].iter().all(u8::is_ascii_digit)
}
