//! Tests of a waiter whose validity ends at the very moment of its grant.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::store::{Intercept, Intercepted};
use crate::stores::Memory;
use crate::{Claim, Entered, Error, Locks, OnContention, Result, Standing, Store};

fn locks(store: impl Store) -> Locks {
    Locks::from_store(store, "memory:").expect("the background thread runs")
}

/// A store that keeps a claim for longer than the lease in its replies.
///
/// A test can make it drop renewals, and decides when a claim may leave.
#[derive(Clone, Debug)]
struct ShortLease {
    store: Memory,
    drops_renewals: Arc<AtomicBool>,
    leaving: Arc<AtomicBool>,
    allows_leave: Arc<Semaphore>,
}

impl ShortLease {
    fn new() -> Self {
        Self {
            store: Memory::new(),
            drops_renewals: Arc::default(),
            leaving: Arc::default(),
            allows_leave: Arc::new(Semaphore::new(0)),
        }
    }
}

#[async_trait]
impl Intercept for ShortLease {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let entered = self.store.enter(claim, on_contention).await?;
        Ok(Entered::new(entered.standing, Duration::from_millis(100)))
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        if self.drops_renewals.load(SeqCst) {
            return Err(Error::unavailable("the test drops renewals"));
        }
        self.store.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.leaving.store(true, SeqCst);
        let _allowed = self.allows_leave.acquire().await;
        self.store.leave(claim).await
    }
}

/// The validity of a waiting claim has ended, so the claim is leaving when its grant arrives.
///
/// Shows G-01.
#[tokio::test]
async fn leaving_claim_is_not_confirmed() {
    let store = ShortLease::new();
    let theirs = locks(store.store.clone());
    let ours = locks(Intercepted(store.clone()));
    let first = theirs.mutex("a").acquire().await.expect("it is free");

    store.drops_renewals.store(true, SeqCst);
    let lock = ours.mutex("a");
    let mut acquiring = pin!(lock.acquire());
    assert!(futures_util::poll!(&mut acquiring).is_pending());
    while !store.leaving.load(SeqCst) {
        sleep(Duration::from_millis(1)).await;
        // It is polled until it is queued, and then not before its validity has ended, as on a
        // busy machine.
        let state = theirs.inspect("a").await.expect("the store replies");
        if state.waiters().count() == 0 {
            assert!(futures_util::poll!(&mut acquiring).is_pending());
        }
    }

    first.release().await.expect("it was held");
    store.drops_renewals.store(false, SeqCst);
    let early = timeout(Duration::from_millis(100), &mut acquiring).await;
    assert!(early.is_err(), "a leaving claim was granted");

    store.allows_leave.add_permits(10);
    let held = acquiring.await.expect("another claim is granted");
    let other = theirs
        .mutex("a")
        .try_acquire()
        .await
        .expect("the store replies");
    assert!(other.is_err(), "two hold at once");
    held.release().await.expect("it was held");
}

/// The lease that a [`Recording`] grants to a queued claim.
const QUEUED_LEASE: Duration = Duration::from_secs(1);

/// A store that drops the renewals of a waiting claim, and records the steps of the claim.
///
/// It confirms a grant once the queued claim's validity has ended, or once the claim is leaving.
/// The claim has left only after its grant has been confirmed.
#[derive(Clone, Debug, Default)]
struct Recording {
    store: Memory,
    seen: Arc<watch::Sender<Seen>>,
}

#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one step that was seen"
)]
struct Seen {
    entered: Option<Instant>,
    granted: bool,
    leaving: bool,
    confirmed: bool,
    left: bool,
}

impl Recording {
    fn update(&self, step: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(step);
    }

    async fn until(&self, step: impl FnMut(&Seen) -> bool) -> Seen {
        let mut receiver = self.seen.subscribe();
        let seen = receiver.wait_for(step).await;
        *seen.expect("the sender exists")
    }
}

#[async_trait]
impl Intercept for Recording {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let entered = self.store.enter(claim, on_contention).await?;
        self.update(|seen| seen.entered = Some(Instant::now()));
        Ok(Entered::new(entered.standing, QUEUED_LEASE))
    }

    async fn queued(&self, claim: &Claim, ahead: u32) -> Result<Standing> {
        let standing = self.store.queued(claim, ahead).await?;
        self.update(|seen| seen.granted |= standing.token().is_some());
        Ok(standing)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let seen = *self.seen.borrow();
        let Some(entered) = seen.entered.filter(|_| seen.granted) else {
            return Err(Error::unavailable("the test drops renewals"));
        };

        tokio::select! {
            _ = self.until(|seen| seen.leaving) => {}
            () = sleep_until(entered + 2 * QUEUED_LEASE) => {}
        }
        self.store.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.update(|seen| seen.leaving = true);
        self.until(|seen| seen.confirmed).await;

        let left = self.store.leave(claim).await;
        self.update(|seen| seen.left = true);
        left
    }
}

/// The validity of the queued claim ends while its grant is being confirmed. The claim must not
/// leave under a valid guard.
///
/// Shows G-01.
#[tokio::test]
async fn expired_queue_entry_does_not_end_the_granted_hold() {
    let recording = Recording::default();
    let theirs = locks(recording.store.clone());
    let ours = locks(Intercepted(recording.clone()));
    let held = theirs.mutex("a").acquire().await.expect("it is free");

    let waiting = tokio::spawn(async move { ours.mutex("a").acquire().await });
    let seen = recording.until(|seen| seen.entered.is_some()).await;
    let entered = seen.entered.expect("it was just seen");
    // So little validity is left then that the engine confirms the grant. The validity ends
    // meanwhile.
    sleep_until(entered + QUEUED_LEASE * 6 / 10).await;
    held.release().await.expect("it was held");

    let guard = waiting.await.expect("no panic").expect("it is granted");
    recording.update(|seen| seen.confirmed = true);
    if recording.seen.borrow().leaving {
        recording.until(|seen| seen.left).await;
    }

    let other = theirs
        .mutex("a")
        .try_acquire()
        .await
        .expect("the store replies");
    assert!(other.is_err() || guard.check().is_err(), "two hold");
}
