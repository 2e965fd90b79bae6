//! Futures dropped at every moment, answers lost, late or refused: nothing may be left behind.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::Service;
use super::support::{client, empty, eventually, fresh_name, locks_over, store, within_timeout};
use crate::store::Extensions;
use crate::{
    Claim, Entered, Error, Guarantees, Lock, LockState, Locks, LossReason, Name, OnContention,
    RenewalStatus, Result, Standing, Store,
};

/// What happens to the questions a store is asked.
#[derive(Debug, Default)]
pub(super) struct InjectedFaults {
    pub(super) calls: AtomicU32,
    reply: Mutex<ReplyFault>,
    /// Nothing arrives any more.
    disconnected: AtomicBool,
}

/// What becomes of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReplyFault {
    #[default]
    Ok,
    /// The question never arrives.
    NotSent,
    /// It is done, and nobody hears of it.
    Lost,
    /// It is done, and the answer comes some turns later.
    Late,
}

/// A store that counts its calls and, when told, treats the first of them badly.
#[derive(Debug)]
pub(super) struct FaultyStore {
    store: Arc<dyn Store>,
    faults: Arc<InjectedFaults>,
}

impl FaultyStore {
    pub(super) fn new(store: Arc<dyn Store>, faults: Arc<InjectedFaults>) -> Self {
        Self { store, faults }
    }

    async fn intercept<T>(&self, reply: impl Future<Output = Result<T>>) -> Result<T> {
        self.faults.calls.fetch_add(1, Ordering::SeqCst);
        let fault = std::mem::take(&mut *self.faults.reply.lock());
        let refused = || Err(Error::unavailable("injected: the connection broke"));
        tokio::task::yield_now().await;
        if fault == ReplyFault::NotSent || self.faults.disconnected.load(Ordering::SeqCst) {
            return refused();
        }
        let reply = reply.await;
        let rounds = if fault == ReplyFault::Late { 5 } else { 1 };
        for _ in 0..rounds {
            tokio::task::yield_now().await;
        }
        if fault == ReplyFault::Lost {
            refused()
        } else {
            reply
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.intercept(self.store.enter(claim, on_contention)).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.intercept(self.store.changed(claim, seen)).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        self.intercept(self.store.renew(claims)).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.intercept(self.store.leave(claim)).await
    }

    fn extensions(&self) -> Extensions<'_> {
        self.store.extensions()
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.store.inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.store.list(prefix, count_max).await
    }
}

/// Acquiring is dropped after every number of polls, on a free lock and on one that is being handed over, with every
/// kind of reply: afterwards the line is empty and the next one gets the lock.
pub async fn cancelled_acquire_leaves_no_entry(service: &dyn Service) {
    for fault in [
        ReplyFault::Ok,
        ReplyFault::NotSent,
        ReplyFault::Lost,
        ReplyFault::Late,
    ] {
        for contended in [false, true] {
            cancel_at_every_call(service, fault, contended).await;
        }
    }
}

async fn cancel_at_every_call(service: &dyn Service, fault: ReplyFault, contended: bool) {
    let faults = Arc::new(InjectedFaults::default());
    let ours = locks_over(Arc::new(FaultyStore::new(
        store(service).await,
        Arc::clone(&faults),
    )));
    let theirs = client(service).await;
    for polls in 0.. {
        let name = fresh_name("cancelled");
        let holder = if contended {
            Some(theirs.mutex(&name).acquire().await.expect("granted"))
        } else {
            None
        };
        *faults.reply.lock() = fault;
        let finished = drop_after(
            polls,
            &ours.mutex(&name),
            holder.map(|guard| (polls / 2, guard)),
        )
        .await;
        *faults.reply.lock() = ReplyFault::Ok;
        empty(&theirs, &name).await;
        let next = within_timeout("the next holds", theirs.mutex(&name).acquire())
            .await
            .expect("granted");
        next.release().await.expect("released");
        if finished {
            assert!(polls > 2, "the sweep met moments to drop at");
            return;
        }
        assert!(polls < 10_000, "acquiring never ends");
    }
}

/// Polls an acquire so many times, then drops it; says whether it was granted by then. The lock's holder, if any,
/// releases after some of the polls.
async fn drop_after(polls: u32, lock: &Lock, mut holder: Option<(u32, crate::Guard)>) -> bool {
    let mut acquiring = pin!(lock.acquire());
    for poll in 0..polls {
        if holder.as_ref().is_some_and(|(at, _)| *at == poll) {
            let (_, guard) = holder.take().expect("it is there");
            guard.release().await.expect("released");
        }
        match acquiring
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(granted) => {
                drop(granted.expect("granted"));
                return true;
            }
            Poll::Pending => tokio::time::sleep(Duration::from_micros(500)).await,
        }
    }
    drop(holder);
    false
}

/// Downgrading is dropped after every number of polls, and its guard right after it: the claim does not get in line again
/// behind its own leaving.
pub async fn cancelled_downgrade_leaves_no_entry(service: &dyn Service) {
    let faults = Arc::new(InjectedFaults::default());
    let ours = locks_over(Arc::new(FaultyStore::new(
        store(service).await,
        Arc::clone(&faults),
    )));
    if !ours.guarantees().shares {
        return;
    }
    let theirs = client(service).await;
    for fault in [
        ReplyFault::Ok,
        ReplyFault::NotSent,
        ReplyFault::Lost,
        ReplyFault::Late,
    ] {
        for polls in 1..6 {
            let name = fresh_name("downgrade");
            let held = ours
                .rwlock(&name)
                .exclusive()
                .acquire()
                .await
                .expect("granted");
            *faults.reply.lock() = fault;
            let mut downgrading = Box::pin(held.downgrade());
            for _ in 0..polls {
                if downgrading
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_ready()
                {
                    break;
                }
            }
            drop(downgrading);
            drop(held);
            crate::drain().await;
            *faults.reply.lock() = ReplyFault::Ok;
            assert_eq!(
                theirs.inspect(&name).await.expect("looked").entries,
                [],
                "{fault:?} after {polls} polls"
            );
        }
    }
}

/// A writer who was broken does not get in line again by downgrading.
pub async fn broken_writer_does_not_hold_again(service: &dyn Service) {
    let (ours, theirs, name) = (
        client(service).await,
        client(service).await,
        fresh_name("broken"),
    );
    if !ours.guarantees().shares {
        return;
    }
    let held = ours
        .rwlock(&name)
        .exclusive()
        .acquire()
        .await
        .expect("granted");
    theirs
        .break_hold(&name, held.token())
        .await
        .expect("asked")
        .expect("it was held");
    assert!(held.downgrade().await.expect_err("broken").is_lost());
    assert_eq!(theirs.inspect(&name).await.expect("looked").entries, []);
    assert!(held.check().expect_err("broken").is_lost());
}

/// An answer that is lost, late or refused, at entering, waiting, confirming, renewing or leaving, neither loses the lock
/// nor leaves it behind.
pub async fn lost_reply_leaves_no_entry(service: &dyn Service) {
    let faults = Arc::new(InjectedFaults::default());
    let ours = locks_over(Arc::new(FaultyStore::new(
        store(service).await,
        Arc::clone(&faults),
    )));
    let theirs = client(service).await;
    for fault in [ReplyFault::NotSent, ReplyFault::Lost, ReplyFault::Late] {
        let name = fresh_name("lost");
        let tell = || *faults.reply.lock() = fault;
        tell();
        let held = within_timeout(
            "granted after all",
            ours.mutex(&name)
                .lease(Duration::from_millis(600))
                .acquire(),
        )
        .await;
        let held = held.expect("entering is repeated");
        tell();
        assert!(
            theirs
                .mutex(&name)
                .try_acquire_for(Duration::from_millis(700))
                .await
                .expect("asked")
                .is_none()
        );
        held.check().expect("renewing is repeated");
        tell();
        let left = within_timeout("released after all", held.release()).await;
        left.expect("a release that was done, but whose answer was lost, is a release");
        empty(&theirs, &name).await;
        late_grant_is_confirmed(&ours, &theirs, tell).await;
    }
}

/// A fixed lease that was waited for begins with a question of its own.
async fn late_grant_is_confirmed(ours: &Locks, theirs: &Locks, tell: impl Fn()) {
    let name = fresh_name("confirmed");
    let first = theirs.mutex(&name).acquire().await.expect("granted");
    let lock = ours.mutex(&name).no_renewal();
    let mut acquiring = pin!(lock.acquire());
    while ours.inspect(&name).await.expect("looked").waiters().count() == 0 {
        let early = timeout(Duration::from_millis(5), &mut acquiring).await;
        assert!(early.is_err(), "two hold at once");
    }
    tell();
    first.release().await.expect("released");
    let held = within_timeout("granted after all", acquiring)
        .await
        .expect("confirming is repeated");
    held.release().await.expect("released");
}

/// A release that the store could not take for longer than the lease is made up for when it can.
pub async fn leave_is_retried_beyond_the_lease(service: &dyn Service) {
    let (faults, theirs, name) = (
        Arc::new(InjectedFaults::default()),
        client(service).await,
        fresh_name("outlast"),
    );
    let ours = locks_over(Arc::new(FaultyStore::new(
        store(service).await,
        Arc::clone(&faults),
    )));
    let held = ours
        .mutex(&name)
        .lease(Duration::from_millis(100))
        .acquire()
        .await
        .expect("granted");
    faults.disconnected.store(true, Ordering::SeqCst);
    drop(held);
    crate::drain().await;
    faults.disconnected.store(false, Ordering::SeqCst);
    let next = within_timeout("the next holds", theirs.mutex(&name).acquire())
        .await
        .expect("granted");
    next.release().await.expect("released");
}

/// A holder that is cut off hears that it lost the lock before the store lets anybody else have it, and never again
/// holds it, even if the store can be reached in time.
pub async fn disconnected_hold_is_lost_in_time(service: &dyn Service) {
    let (faults, theirs, name) = (
        Arc::new(InjectedFaults::default()),
        client(service).await,
        fresh_name("cut"),
    );
    let ours = locks_over(Arc::new(FaultyStore::new(
        store(service).await,
        Arc::clone(&faults),
    )));
    if !ours.guarantees().lease_expiry {
        return;
    }
    let held = ours
        .mutex(&name)
        .lease(Duration::from_millis(1500))
        .acquire()
        .await
        .expect("granted");
    assert_eq!(held.renewal(), RenewalStatus::OnTime);
    faults.disconnected.store(true, Ordering::SeqCst);
    eventually("its renewal is late", async || {
        held.renewal() == RenewalStatus::Late
    })
    .await;
    let next = within_timeout("the lease ends", theirs.mutex(&name).acquire())
        .await
        .expect("granted");
    assert!(held.check().expect_err("two hold at once").is_lost());
    assert_eq!(
        (
            within_timeout("the loss is heard", held.lost()).await,
            held.renewal()
        ),
        (LossReason::RenewalTimedOut, RenewalStatus::Off)
    );
    faults.disconnected.store(false, Ordering::SeqCst);
    assert!(held.release().await.expect_err("lost for good").is_lost());
    next.check().expect("a late release is not of this claim");
    next.release().await.expect("released");
    empty(&theirs, &name).await;
}
