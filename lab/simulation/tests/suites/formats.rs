//! Lost and late messages, and what other programs write, in each format on one server.

use std::pin::pin;

use futures_util::future::join;
use lab_redis_model::Reply;
use leasehold::store::{Claim, OnContention, Share, Standing};
use leasehold_conformance::support::{PUSHED_LEASE, claim, within_timeout};
use tokio::time::{Instant, sleep, timeout};

use super::clients::{cut_off, open, remote};
use super::*;

/// The plain format takes back a grant whose reply is lost.
const FORMATS: [&str; 5] = ["", LOCK, FENCED, READ_WRITE, SEMAPHORE];
const LOCK: &str = "dialect=redisson";
const FENCED: &str = "dialect=redisson&lock=fenced";
const READ_WRITE: &str = "dialect=redisson&lock=rw";
const SEMAPHORE: &str = "dialect=redisson&lock=semaphore";

const LEASE: Duration = Duration::from_secs(8);
const SECOND: Duration = Duration::from_secs(1);

/// The reply with a grant is lost, and another claim of the client waits. The repeated request is
/// granted, for a whole lease from then on.
///
/// Shows G-01, G-16.
#[tokio::test]
async fn repeated_request_is_granted_for_a_whole_lease() {
    for format in FORMATS {
        let (server, wire, ours) = wired(format, Duration::ZERO).await;
        let [holder, waiter, other] = [(), (), ()].map(|()| claim_of(Share::MUTEX));
        wire.drop_replies(1);
        let lost = ours.enter(&holder, OnContention::Queue).await;
        lost.expect_err(format);
        let standing = enter(&*ours, &waiter, OnContention::Queue).await;
        assert_eq!(standing, Standing::Queued { ahead: 1 }, "{format}");

        let standing = enter(&*ours, &holder, OnContention::Queue).await;
        assert!(standing.token().is_some(), "{format}: {standing:?}");
        sleep(LEASE.saturating_sub(SECOND)).await;
        let theirs = connect(&server.url(), format).await;
        let standing = enter(&*theirs, &other, OnContention::Fail).await;
        assert_eq!(standing, Standing::Gone, "{format}: two hold");
    }
}

/// The server executes a request to lock long after its client has given it up. It takes no lock if
/// the claim has left meanwhile, even if the first request to leave was lost, or after 5 s.
///
/// Shows G-10, G-52.
#[tokio::test]
async fn late_request_takes_no_lock_after_its_claim_has_left() {
    for format in FORMATS {
        for (late, leaves) in [(4_500, true), (4_500, false), (5_500, false)] {
            if format.is_empty() && leaves {
                // Its client leaves again later, see below.
                continue;
            }
            // The replies to the first requests are late, too.
            let (_server, wire, ours) = wired(format, SECOND / 8).await;
            let late = Duration::from_millis(late);
            let claim = claim_of(Share::MUTEX);
            let begun = enter_late(&*ours, &wire, &claim, late).await;
            if leaves {
                wire.drop_requests(1);
                ours.leave(&claim).await.expect_err("the request was lost");
                ours.leave(&claim).await.expect("the store replies");
            }

            tokio::time::sleep_until(begun + late + SECOND / 4).await;
            let entries = ours.inspect(&claim.name).await.expect("inspected").entries;
            let is_held = !leaves && late < Duration::from_secs(5);
            assert_eq!(!entries.is_empty(), is_held, "{format} after {late:?}");
        }
    }
}

/// On the queue of leasehold, the request takes the lock, and the client releases it once more when
/// no other request can be late.
///
/// Shows G-10.
#[tokio::test]
async fn late_request_of_a_claim_that_has_left_is_released() {
    let (_server, wire, ours) = wired("", SECOND / 8).await;
    let claim = claim_of(Share::MUTEX);
    let late = Duration::from_millis(4_500);
    let begun = enter_late(&*ours, &wire, &claim, late).await;
    ours.leave(&claim).await.expect("the store replies");

    for (moment, is_held) in [(late + SECOND / 8, true), (SECOND * 10, false)] {
        tokio::time::sleep_until(begun + moment).await;
        let entries = ours.inspect(&claim.name).await.expect("inspected").entries;
        assert_eq!(!entries.is_empty(), is_held, "after {moment:?}");
    }
}

/// The reply with a grant is lost, and the outage lasts until no request can be late any more. The
/// claim finds the permit that it has, and waits for no other one.
///
/// Shows G-16.
#[tokio::test]
async fn claim_finds_its_permit_after_a_long_outage() {
    let (server, wire, ours) = wired(SEMAPHORE, Duration::ZERO).await;
    let mut claim = claim_of(Share::MUTEX);
    claim.lease = 2 * LEASE;
    wire.drop_replies(1);
    let lost = ours.enter(&claim, OnContention::Queue).await;
    lost.expect_err("no reply");
    sleep(LEASE).await;
    ours.inspect(&claim.name)
        .await
        .expect("it is connected again");

    let standing = enter(&*ours, &claim, OnContention::Queue).await;
    assert!(standing.token().is_some(), "{standing:?}");
    assert_eq!(server.command(&["ZCARD", "{a}:timeout"]), Reply::Int(1));
}

/// A program keeps the future of its first waiter and does not poll it any more. Another waiter of
/// the same client is granted the lock.
///
/// Shows L2.
#[tokio::test]
async fn waiter_that_nobody_polls_stops_no_other_one() {
    for format in ["dialect=plain", LOCK, READ_WRITE, SEMAPHORE] {
        let server = Redis::start();
        let ours = open(&server.url(), format).await;
        let theirs = open(&server.url(), format).await;
        let held = theirs.mutex("a").acquire().await.expect("granted");
        let [first, second] = [(), ()].map(|()| ours.mutex("a"));
        let mut unpolled = pin!(first.acquire());
        let waited = timeout(SECOND, unpolled.as_mut()).await;
        assert!(waited.is_err(), "{format}: it waits");
        held.release().await.expect("released");

        let granted = timeout(2 * LEASE, second.acquire()).await;
        drop(granted.expect(format).expect("granted"));
    }
}

/// A program removes one of two permits. The renewal does not take it again.
///
/// Shows G-03.
#[tokio::test]
async fn hold_without_one_of_its_permits_is_gone() {
    let server = Redis::start();
    let ours = connect(&server.url(), SEMAPHORE).await;
    let claim = claim_of(Share::slots(2, 3).expect("two of three"));
    enter(&*ours, &claim, OnContention::Queue).await;
    server.command(&["ZPOPMIN", "{a}:timeout"]);
    let renewed = ours.renew(std::slice::from_ref(&claim)).await;
    assert_eq!(renewed.expect("the store replies"), [None]);
    assert_eq!(server.command(&["ZCARD", "{a}:timeout"]), Reply::Int(1));
}

/// A reader of Redisson has a lease for each of its acquires. When a reader of leasehold leaves, a
/// writer waits for the last of these leases, and is notified if all have ended.
///
/// Shows G-23, G-55.
#[tokio::test]
async fn writer_waits_for_the_last_lease_of_a_reader_of_redisson() {
    let field = "285475da-9152-4c83-822a-67ee2f116a79:52";
    let lasting = [("2", 0), ("2", 1), ("2", 2), ("1e300", 1)];
    for (acquires, lasting) in lasting {
        let server = Redis::start();
        let ours = open(&server.url(), READ_WRITE).await;
        let theirs = open(&server.url(), READ_WRITE).await;
        let reader = ours.rwlock("a").shared().acquire().await.expect("granted");
        server.command(&["HSET", "a", field, acquires]);
        if lasting > 0 {
            let key = format!("{{a}}:{field}:rwlock_timeout:{lasting}");
            server.command(&["SET", &key, "1", "PX", "20000"]);
        }
        let holders = theirs.inspect("a").await.expect("inspected");
        assert_eq!(holders.holders().count(), 1 + lasting.min(1));

        let writing = tokio::spawn(theirs.rwlock("a").exclusive().acquire());
        sleep(SECOND).await;
        reader.release().await.expect("released");
        sleep(SECOND).await;
        assert_eq!(writing.is_finished(), lasting == 0, "{acquires}, {lasting}");
        sleep(Duration::from_secs(20)).await;
        assert!(writing.is_finished());
    }
}

/// An operator deletes all keys while the holder is disconnected, and nothing is published. The
/// holder notices it when it is connected again, and not only at the next renewal. The waiter tries
/// again soon.
///
/// Shows G-12, L2.
#[tokio::test]
async fn deletion_without_a_message_is_noticed_soon() {
    for format in FORMATS {
        let server = Redis::start();
        let (wire, ours) = remote(&server, format).await;
        let lock = ours.mutex("a").lease(PUSHED_LEASE);
        let held = lock.acquire().await.expect("granted");
        let waiting = tokio::spawn(open(&server.url(), format).await.mutex("a").acquire());
        let mut lost = pin!(held.lost());
        timeout(SECOND, &mut lost).await.expect_err("it holds");

        cut_off(&wire);
        server.command(&["FLUSHALL"]);
        wire.refuse(false);
        within_timeout(format, lost).await;
        let granted = within_timeout(format, waiting).await.expect("no panic");
        let _next = granted.expect("granted");
    }
}

/// A server keeps a hold for the timeout of the watchdog. A reply is missing after a quarter of it,
/// so that the renewal can be repeated in time, although the lease of the lock is much longer. A
/// hold that is not renewed keeps its own lease.
///
/// Shows G-14, G-52.
#[tokio::test]
async fn hold_with_a_short_watchdog_survives_a_lost_reply() {
    let server = Redis::start();
    let (wire, locks) = remote(&server, "dialect=redisson&watchdog=2s").await;
    let held = locks.mutex("a").acquire().await.expect("granted");
    sleep(SECOND).await;
    wire.drop_replies(1);
    sleep(LEASE).await;
    held.check().expect("the renewal is repeated");

    let fixed = locks.mutex("b").lease(SECOND).no_renewal();
    let _fixed = fixed.acquire().await.expect("granted");
    let left = server.command(&["PTTL", "b"]);
    assert!(matches!(left, Reply::Int(..=1000)), "{left:?}");

    cut_off(&wire);
    sleep(SECOND * 2).await;
    held.check().expect_err("its lease on the server has ended");
}

/// Readers of Redisson renew the key of a read-write lock for 30 s, whatever a hold has asked for. So
/// a hold that is renewed has that lease, and a longer one that is not renewed is refused.
///
/// Shows G-52.
#[tokio::test]
async fn lease_of_a_read_write_lock_is_that_of_its_readers() {
    const LONGEST: Duration = Duration::from_secs(30);
    for (format, keeps_long_leases) in [(LOCK, true), (READ_WRITE, false)] {
        let server = Redis::start();
        let locks = open(&server.url(), format).await;
        let left = || Duration::from_millis(server.command(&["PTTL", "a"]).int().unsigned_abs());
        for is_renewed in [true, false] {
            let lock = locks.mutex("a").lease(LONGEST * 2);
            let lock = if is_renewed { lock } else { lock.no_renewal() };
            let held = match lock.acquire().await {
                Err(error) => {
                    assert!(error.is_unsupported() && !is_renewed && !keeps_long_leases);
                    continue;
                }
                Ok(held) => held,
            };
            assert!(is_renewed || keeps_long_leases, "{format}");
            assert_eq!(left() > LONGEST, keeps_long_leases, "{format}");
            held.release().await.expect("released");
        }

        let held = locks.mutex("a").lease(LONGEST).no_renewal().acquire().await;
        drop(held.expect("readers keep it"));
    }
}

/// The server has refused the request of a waiter, and the reply is slow. The release that follows
/// wakes the waiter.
///
/// Shows G-52, L2.
#[tokio::test]
async fn release_during_a_request_wakes_the_waiter() {
    for format in [LOCK, FENCED, READ_WRITE, SEMAPHORE] {
        let (server, wire, ours) = wired(format, Duration::ZERO).await;
        let theirs = connect(&server.url(), format).await;
        let [holder, waiter] = [(), ()].map(|()| claim_of(Share::MUTEX));
        enter(&*theirs, &holder, OnContention::Queue).await;
        let standing = enter(&*ours, &waiter, OnContention::Queue).await;
        let Standing::Queued { ahead } = standing else {
            panic!("{format}: {standing:?}");
        };

        wire.delay(SECOND / 2);
        let releasing = async {
            // The waiter has subscribed, and the server has refused its next request.
            sleep(SECOND * 7 / 4).await;
            wire.delay(Duration::ZERO);
            theirs.leave(&holder).await.expect("the store replies");
            sleep(SECOND).await;
        };
        let mut waiting = pin!(ours.queued(&waiter, ahead));
        let (granted, ()) = join(timeout(SECOND * 6, &mut waiting), releasing).await;
        let standing = granted.expect(format).expect("the store replies");
        assert!(standing.token().is_some(), "{format}: {standing:?}");
    }
}

/// Each message makes the task that awaits a loss look whether the claim still holds.
///
/// Shows G-14.
#[tokio::test]
async fn fixed_lease_of_a_watched_hold_ends_in_time() {
    for format in [LOCK, FENCED, READ_WRITE, SEMAPHORE] {
        let server = Redis::start();
        let ours = connect(&server.url(), format).await;
        let mut fixed = claim_of(Share::MUTEX);
        fixed.auto_renew = false;
        let held = enter(&*ours, &fixed, OnContention::Queue).await;
        let token = held.token().expect("granted");
        let watching = timeout(LEASE / 2, ours.lost(&fixed, token));
        watching.await.expect_err("it holds");
        sleep(LEASE / 4).await;
        let watching = timeout(LEASE / 4, ours.lost(&fixed, token));
        let _ended = watching.await;

        let theirs = connect(&server.url(), format).await;
        let standing = enter(&*theirs, &claim_of(Share::MUTEX), OnContention::Fail).await;
        assert!(standing.token().is_some(), "{format}: {standing:?}");
    }
}

/// The engine asks a writer whose hold is gone to become a reader.
///
/// Shows G-07, G-55.
#[tokio::test]
async fn downgrade_of_a_hold_that_is_gone_takes_nothing() {
    let server = Redis::start();
    let ours = connect(&server.url(), READ_WRITE).await;
    let writer = claim_of(Share::WRITER);
    enter(&*ours, &writer, OnContention::Queue).await;
    server.command(&["DEL", "a"]);

    let mut reader = writer.clone();
    reader.share = Share::READER;
    let standing = enter(&*ours, &reader, OnContention::Queue).await;
    assert_eq!(standing, Standing::Gone);
    assert_eq!(server.command(&["EXISTS", "a"]), Reply::Int(0));
}

/// A server, and a client behind a wire that is slow while the client connects. The server knows the
/// scripts.
async fn wired(format: &str, delay: Duration) -> (Redis, Wire, Arc<dyn Store>) {
    let server = Redis::start();
    let wire = Wire::to(server.address());
    wire.delay(delay);
    let store = connect(&wire.url_of("redis"), format).await;
    wire.delay(Duration::ZERO);
    let first = claim_of(Share::MUTEX);
    enter(&*store, &first, OnContention::Queue).await;
    store.leave(&first).await.expect("the store replies");
    (server, wire, store)
}

async fn connect(url: &str, format: &str) -> Arc<dyn Store> {
    let url = format!("{url}?{format}");
    Servers { url }.connect().await.expect("the store opens")
}

fn claim_of(share: Share) -> Claim {
    let mut claim = claim("a");
    claim.share = share;
    claim.lease = LEASE;
    claim
}

/// Sends a request to enter that arrives late, after its client has given it up and connected again.
/// Returns when it was sent.
async fn enter_late(store: &dyn Store, wire: &Wire, claim: &Claim, late: Duration) -> Instant {
    wire.delay(late);
    let begun = Instant::now();
    let sent = async {
        sleep(SECOND).await;
        wire.delay(Duration::ZERO);
    };
    let (unanswered, ()) = join(store.enter(claim, OnContention::Queue), sent).await;
    unanswered.expect_err("no reply in time");
    let again = store.inspect(&claim.name).await;
    again.expect("it is connected again");
    begun
}

/// Repeats a request to enter until it has a reply.
async fn enter(store: &dyn Store, claim: &Claim, on_contention: OnContention) -> Standing {
    let repeating = async {
        loop {
            if let Ok(entered) = store.enter(claim, on_contention).await {
                return entered.standing;
            }
            sleep(SECOND / 10).await;
        }
    };
    within_timeout("the store replies", repeating).await
}
