//! What becomes of a waiter whose time in line runs out at the very moment of its grant.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::conformance::{Intercept, Intercepted};
use crate::stores::Memory;
use crate::{Claim, Entered, Error, Locks, OnContention, Result, Standing, Store};

fn intercepted(store: impl Store) -> Locks {
    Locks::from_arc(Arc::new(store), "memory:").expect("the background thread runs")
}

/// Keeps a claim for longer than it vouches for, and can be made deaf to renewals and slow to let go.
#[derive(Clone, Debug)]
struct ShortLease {
    store: Memory,
    drops_renewals: Arc<AtomicBool>,
    leaving: Arc<AtomicBool>,
    allows_leave: Arc<Semaphore>,
}

#[async_trait]
impl Intercept for ShortLease {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        let entered = self.store.enter(claim, on_contention).await?;
        Ok(Entered {
            lease: Duration::from_millis(100),
            ..entered
        })
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        if self.drops_renewals.load(SeqCst) {
            return Err(Error::unavailable("it is deaf"));
        }
        self.store.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.leaving.store(true, SeqCst);
        let _allowed = self.allows_leave.acquire().await;
        self.store.leave(claim).await
    }
}

/// The time of a claim in line is over, so it is leaving; that is under way when its grant is heard of.
#[tokio::test]
async fn leaving_claim_is_not_confirmed() {
    let (drops_renewals, leaving) = Default::default();
    let short_lease = ShortLease {
        store: Memory::new(),
        drops_renewals,
        leaving,
        allows_leave: Arc::new(Semaphore::new(0)),
    };
    let (theirs, ours) = (
        intercepted(short_lease.store.clone()),
        intercepted(Intercepted(short_lease.clone())),
    );
    let first = theirs.mutex("a").acquire().await.expect("granted");
    short_lease.drops_renewals.store(true, SeqCst);
    let lock = ours.mutex("a");
    let mut acquiring = pin!(lock.acquire());
    assert!(futures_util::poll!(&mut acquiring).is_pending());
    while !short_lease.leaving.load(SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // Polled until it is in line, and then not before its time is over, as on a busy machine.
        if theirs.inspect("a").await.expect("looked").waiters().count() == 0 {
            assert!(futures_util::poll!(&mut acquiring).is_pending());
        }
    }
    first.release().await.expect("released");
    short_lease.drops_renewals.store(false, SeqCst);
    let early = timeout(Duration::from_millis(100), &mut acquiring).await;
    assert!(early.is_err(), "it holds by a claim that is leaving");
    short_lease.allows_leave.add_permits(10);
    let held = acquiring.await.expect("granted to another claim");
    assert!(
        theirs
            .mutex("a")
            .try_acquire()
            .await
            .expect("asked")
            .is_none(),
        "two hold at once"
    );
    held.release().await.expect("released");
}

/// For so long a place in line is trusted here.
const SAFE: Duration = Duration::from_secs(1);

/// Nobody hears of renewals while waiting. A grant is confirmed when the time in line has run out, or later: as soon as the claim is
/// being taken out of the line, if it is. Taking it out lasts until the grant has been confirmed.
#[derive(Clone, Debug)]
struct Recording {
    store: Memory,
    seen: Arc<watch::Sender<Seen>>,
}

#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that has been seen"
)]
struct Seen {
    entered: Option<Instant>,
    granted: bool,
    leaving: bool,
    confirmed: bool,
    left: bool,
}

impl Recording {
    fn update(&self, what: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(what);
    }

    async fn until(&self, what: impl FnMut(&Seen) -> bool) {
        self.seen
            .subscribe()
            .wait_for(what)
            .await
            .expect("the sender is here");
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
        Ok(Entered {
            lease: SAFE,
            ..entered
        })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let standing = self.store.changed(claim, seen).await?;
        self.update(|seen| seen.granted |= standing.token().is_some());
        Ok(standing)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let seen = *self.seen.borrow();
        let Some(entered) = seen.entered.filter(|_| seen.granted) else {
            return Err(Error::unavailable("it is deaf"));
        };
        tokio::select! {
            () = self.until(|seen| seen.leaving) => {}
            () = sleep_until(entered + 2 * SAFE) => {}
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

/// The claim was taken out of the line because its time had run out, while its grant was confirmed: its guard was good, and
/// the lock was free.
#[tokio::test]
async fn expired_queue_entry_does_not_end_the_granted_hold() {
    let recording = Recording {
        store: Memory::new(),
        seen: Arc::default(),
    };
    let (theirs, ours) = (
        intercepted(recording.store.clone()),
        intercepted(Intercepted(recording.clone())),
    );
    let held = theirs.mutex("a").acquire().await.expect("free");
    let waiting = tokio::spawn(async move { ours.mutex("a").acquire().await });
    recording.until(|seen| seen.entered.is_some()).await;
    let entered = recording.seen.borrow().entered.expect("just seen");
    // When so little is left of its time that a grant is confirmed, and the time runs out meanwhile.
    sleep_until(entered + SAFE * 6 / 10).await;
    held.release().await.expect("held");

    let guard = waiting.await.expect("no panic").expect("granted");
    recording.update(|seen| seen.confirmed = true);
    if recording.seen.borrow().leaving {
        recording.until(|seen| seen.left).await;
    }
    let other = theirs.mutex("a").try_acquire().await.expect("asked");
    assert!(other.is_none() || guard.check().is_err(), "two hold");
}
