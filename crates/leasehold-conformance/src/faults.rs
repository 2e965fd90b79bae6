//! Futures dropped at every await, and replies that are lost, late or refused: no entry stays
//! behind.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::faulty_client::{FaultyClient, ReplyFault};
use super::support::{
    BRIEF_LEASE, acquire, break_held, client, empty, eventually, fresh_name, release,
    within_timeout,
};
use super::{Service, shares};
use leasehold_core::{Guard, Lock, Locks, LossReason, RenewalStatus};

/// An acquire is dropped after every number of polls, on a free lock and during a hand-over, with
/// every kind of reply. Afterwards the queue is empty and the next client gets the lock.
///
/// Shows G-10, L5.
pub async fn cancelled_acquire_leaves_no_entry(service: &dyn Service) {
    for fault in ReplyFault::ALL {
        for contended in [false, true] {
            cancel_at_every_poll(service, fault, contended).await;
        }
    }
}

async fn cancel_at_every_poll(service: &dyn Service, fault: ReplyFault, contended: bool) {
    let faulty = FaultyClient::connect(service).await;
    let theirs = client(service).await;

    for polls in 0.. {
        let name = fresh_name("cancelled");
        let mut holder = None;
        if contended {
            let guard = acquire(&theirs.mutex(&name)).await;
            holder = Some(ReleasedHolder {
                guard,
                at_poll: polls / 2,
            });
        }

        faulty.faults.inject(fault);
        let is_granted = drop_after(polls, &faulty.locks.mutex(&name), holder).await;
        faulty.faults.inject(ReplyFault::Ok);

        empty(&theirs, &name).await;
        release(acquire(&theirs.mutex(&name)).await).await;
        if is_granted {
            assert!(polls > 2, "the acquire was granted too early to be dropped");
            return;
        }
        assert!(polls < 10_000, "the acquire is never granted");
    }
}

/// A holder that releases its lock before a given poll.
struct ReleasedHolder {
    guard: Guard,
    at_poll: u32,
}

/// Polls an acquire `polls` times and then drops it. Returns whether the lock was granted by then.
async fn drop_after(polls: u32, lock: &Lock, mut holder: Option<ReleasedHolder>) -> bool {
    let mut acquiring = pin!(lock.acquire());
    for poll in 0..polls {
        if let Some(holder) = holder.take_if(|holder| holder.at_poll == poll) {
            release(holder.guard).await;
        }

        let mut context = Context::from_waker(Waker::noop());
        match acquiring.as_mut().poll(&mut context) {
            Poll::Ready(granted) => {
                drop(granted.expect("granted"));
                return true;
            }
            Poll::Pending => sleep(Duration::from_micros(500)).await,
        }
    }
    drop(holder);
    false
}

/// A downgrade is dropped after every number of polls, and its guard right after it. The claim does
/// not enter the queue again after it has left.
///
/// Shows G-10.
pub async fn cancelled_downgrade_leaves_no_entry(service: &dyn Service) {
    if shares::without_readers(service).await {
        return;
    }
    let faulty = FaultyClient::connect(service).await;
    let theirs = client(service).await;
    let mut names = Vec::new();

    for fault in ReplyFault::ALL {
        for polls in 1..6 {
            let name = fresh_name("downgrade");
            let held = acquire(&faulty.locks.rwlock(&name).exclusive()).await;
            faulty.faults.inject(fault);

            poll_up_to(polls, held.downgrade());
            drop(held);

            empty(&theirs, &name).await;
            faulty.faults.inject(ReplyFault::Ok);
            names.push((name, fault, polls));
        }
    }

    // A downgrade that overtakes the departure enters soon after it, and then stays.
    for (name, fault, polls) in names {
        let lock_state = theirs.inspect(&name).await.expect("inspected");
        assert_eq!(lock_state.entries, [], "{fault:?} after {polls} polls");
    }
}

/// Polls a future until it is ready, at most `polls` times, and drops it.
fn poll_up_to(polls: u32, future: impl Future) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());

    for _ in 0..polls {
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
}

/// A downgrade does not put a writer whose hold was broken into the queue again.
///
/// Shows G-07.
pub async fn broken_writer_does_not_hold_again(service: &dyn Service) {
    if shares::without_readers(service).await {
        return;
    }
    let ours = client(service).await;
    let theirs = client(service).await;
    let name = fresh_name("broken");

    let held = acquire(&ours.rwlock(&name).exclusive()).await;
    break_held(&theirs, &name, held.token()).await;

    assert!(held.downgrade().await.expect_err("broken").is_lost());
    let lock_state = theirs.inspect(&name).await.expect("inspected");
    assert_eq!(lock_state.entries, []);
    assert!(held.check().expect_err("broken").is_lost());
}

/// A reply that is lost, late or refused neither loses the lock nor leaves an entry. This is tried
/// while entering, waiting, confirming, renewing and leaving.
///
/// Shows G-10, L5.
pub async fn lost_reply_leaves_no_entry(service: &dyn Service) {
    const LEASE: Duration = Duration::from_millis(1_500);
    const BEYOND_THE_LEASE: Duration = Duration::from_millis(1_600);
    let faulty = FaultyClient::connect(service).await;
    let theirs = client(service).await;

    for fault in [ReplyFault::NotSent, ReplyFault::Lost, ReplyFault::Late] {
        let name = fresh_name("lost");
        faulty.faults.inject(fault);
        let held = acquire(&faulty.locks.mutex(&name).lease(LEASE)).await;

        faulty.faults.inject(fault);
        let lock = theirs.mutex(&name);
        let refused = lock.try_acquire_for(BEYOND_THE_LEASE).await;
        assert!(refused.expect("the store replies").is_err());
        held.check().expect("the renewal is repeated");
        eventually("a reply ends the lateness of the renewals", async || {
            held.renewal() == RenewalStatus::OnTime
        })
        .await;

        faulty.faults.inject(fault);
        let left = within_timeout("the release is repeated", held.release()).await;
        left.expect("an executed release succeeds, even if its reply was lost");
        empty(&theirs, &name).await;

        late_grant_is_confirmed(&faulty, &theirs, fault).await;
    }
}

/// The fixed lease of a claim that waited begins with a request of its own.
async fn late_grant_is_confirmed(faulty: &FaultyClient, theirs: &Locks, fault: ReplyFault) {
    let name = fresh_name("confirmed");
    let first = acquire(&theirs.mutex(&name)).await;

    let lock = faulty.locks.mutex(&name).no_renewal();
    let mut acquiring = pin!(lock.acquire());
    let waiter_count = async || {
        let lock_state = faulty.locks.inspect(&name).await.expect("inspected");
        lock_state.waiters().count()
    };
    while waiter_count().await == 0 {
        let early = timeout(Duration::from_millis(5), &mut acquiring).await;
        assert!(early.is_err(), "two clients hold at once");
    }

    faulty.faults.inject(fault);
    release(first).await;
    let held = within_timeout("the waiter is granted", acquiring).await;
    release(held.expect("the confirmation is repeated")).await;
}

/// A store rejects a release for longer than the lease. The release is executed as soon as the
/// store accepts it.
///
/// Shows G-10.
pub async fn leave_is_retried_beyond_the_lease(service: &dyn Service) {
    let faulty = FaultyClient::connect(service).await;
    let theirs = client(service).await;
    let name = fresh_name("outlast");

    let lease = BRIEF_LEASE;
    let held = acquire(&faulty.locks.mutex(&name).lease(lease)).await;
    faulty.faults.set_disconnected(true);
    let lease_end = Instant::now() + lease;
    drop(held);

    // `drain` would also wait for the departures of all tests that run beside this one.
    eventually("the release is retried after the lease", async || {
        faulty.faults.has_calls_since(lease_end)
    })
    .await;

    faulty.faults.set_disconnected(false);
    release(acquire(&theirs.mutex(&name)).await).await;
}

/// A disconnected holder is notified of the loss before the store grants the lock to another
/// client. It never holds the lock again, even if it reconnects in time.
///
/// A store without lease expiry keeps the hold of a disconnected client instead.
///
/// Shows G-12, L7.
pub async fn disconnected_hold_is_lost_in_time(service: &dyn Service) {
    let faulty = FaultyClient::connect(service).await;
    let theirs = client(service).await;
    let name = fresh_name("cut");
    let lock = faulty.locks.mutex(&name).lease(Duration::from_millis(1500));
    // The limit is not the reason for the loss, because it is much later.
    let lock = lock.max_hold(Duration::from_secs(3600));
    if !faulty.locks.guarantees().lease_expiry {
        return disconnected_hold_is_kept(&faulty, &theirs, &name).await;
    }

    let held = acquire(&lock).await;
    assert_eq!(held.renewal(), RenewalStatus::OnTime);
    faulty.faults.set_disconnected(true);
    eventually("its renewal is late", async || {
        held.renewal() == RenewalStatus::Late
    })
    .await;

    let next = acquire(&theirs.mutex(&name)).await;
    assert!(held.check().expect_err("two hold at once").is_lost());
    let reason = within_timeout("the holder is notified", held.lost()).await;
    assert_eq!(reason, LossReason::RenewalTimedOut);
    assert_eq!(held.renewal(), RenewalStatus::Off);

    faulty.faults.set_disconnected(false);
    assert!(held.release().await.expect_err("it stays lost").is_lost());
    next.check().expect("a late release is not of this claim");
    release(next).await;
    empty(&theirs, &name).await;
}

async fn disconnected_hold_is_kept(faulty: &FaultyClient, theirs: &Locks, name: &str) {
    let lease = Duration::from_millis(100);
    let held = acquire(&faulty.locks.mutex(name).lease(lease)).await;
    faulty.faults.set_disconnected(true);

    let lock = theirs.mutex(name);
    let refused = lock.try_acquire_for(3 * lease).await;
    assert!(
        refused.expect("the store replies").is_err(),
        "granted although the store never ends a hold by time"
    );

    faulty.faults.set_disconnected(false);
    drop(held);
    empty(theirs, name).await;
}
