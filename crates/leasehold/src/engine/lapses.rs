//! What becomes of a waiter whose time in line runs out at the very moment of its grant.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::bent::{Bend, Bent};
use crate::stores::Memory;
use crate::{Claim, Entered, Error, Locks, Patience, Result, Standing, Store};

fn over(store: impl Store) -> Locks {
    Locks::over(Arc::new(store), "memory:").expect("the background thread runs")
}

/// Keeps a claim for longer than it vouches for, and can be made deaf to renewals and slow to let go.
#[derive(Clone, Debug)]
struct Brief {
    store: Memory,
    deaf: Arc<AtomicBool>,
    leaving: Arc<AtomicBool>,
    lets_go: Arc<Semaphore>,
}

#[async_trait]
impl Bend for Brief {
    fn straight(&self) -> &Memory {
        &self.store
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        let entered = self.store.enter(claim, patience).await?;
        Ok(Entered { lease: Duration::from_millis(100), ..entered })
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        if self.deaf.load(SeqCst) {
            return Err(Error::unavailable("it is deaf"));
        }
        self.store.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.leaving.store(true, SeqCst);
        let _lets_go = self.lets_go.acquire().await;
        self.store.leave(claim).await
    }
}

/// The time of a claim in line is over, so it is leaving; that is under way when its grant is heard of.
#[tokio::test]
async fn a_claim_that_is_leaving_is_not_confirmed() {
    let (deaf, leaving) = Default::default();
    let brief = Brief { store: Memory::new(), deaf, leaving, lets_go: Arc::new(Semaphore::new(0)) };
    let (theirs, ours) = (over(brief.store.clone()), over(Bent(brief.clone())));
    let first = theirs.mutex("a").acquire().await.expect("granted");
    brief.deaf.store(true, SeqCst);
    let lock = ours.mutex("a");
    let mut acquiring = pin!(lock.acquire());
    assert!(futures_util::poll!(&mut acquiring).is_pending());
    while !brief.leaving.load(SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // Polled until it is in line, and then not before its time is over, as on a busy machine.
        if theirs.look("a").await.expect("looked").waiters().count() == 0 {
            assert!(futures_util::poll!(&mut acquiring).is_pending());
        }
    }
    first.release().await.expect("released");
    brief.deaf.store(false, SeqCst);
    let early = timeout(Duration::from_millis(100), &mut acquiring).await;
    assert!(early.is_err(), "it holds by a claim that is leaving");
    brief.lets_go.add_permits(10);
    let held = acquiring.await.expect("granted to another claim");
    assert!(theirs.mutex("a").try_acquire().await.expect("asked").is_none(), "two hold at once");
    held.release().await.expect("released");
}

/// For so long a place in line is trusted here.
const TRUSTED: Duration = Duration::from_secs(1);

/// Nobody hears of renewals while waiting. A grant is confirmed when the time in line has run out, or later: as soon as the claim is
/// being taken out of the line, if it is. Taking it out lasts until the grant has been confirmed.
#[derive(Clone, Debug)]
struct Lapsing {
    store: Memory,
    seen: Arc<watch::Sender<Seen>>,
}

#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that has been seen")]
struct Seen {
    entered: Option<Instant>,
    granted: bool,
    leaving: bool,
    confirmed: bool,
    left: bool,
}

impl Lapsing {
    fn see(&self, what: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(what);
    }

    async fn until(&self, what: impl FnMut(&Seen) -> bool) {
        self.seen.subscribe().wait_for(what).await.expect("the sender is here");
    }
}

#[async_trait]
impl Bend for Lapsing {
    fn straight(&self) -> &Memory {
        &self.store
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        let entered = self.store.enter(claim, patience).await?;
        self.see(|seen| seen.entered = Some(Instant::now()));
        Ok(Entered { lease: TRUSTED, ..entered })
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        let standing = self.store.changed(claim, seen).await?;
        self.see(|seen| seen.granted |= standing.token().is_some());
        Ok(standing)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        let seen = *self.seen.borrow();
        let Some(entered) = seen.entered.filter(|_| seen.granted) else { return Err(Error::unavailable("it is deaf")) };
        tokio::select! {
            () = self.until(|seen| seen.leaving) => {}
            () = sleep_until(entered + 2 * TRUSTED) => {}
        }
        self.store.renew(claims).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.see(|seen| seen.leaving = true);
        self.until(|seen| seen.confirmed).await;
        let left = self.store.leave(claim).await;
        self.see(|seen| seen.left = true);
        left
    }
}

/// The claim was taken out of the line because its time had run out, while its grant was confirmed: its guard was good, and
/// the lock was free.
#[tokio::test]
async fn a_place_in_line_that_has_run_out_takes_no_hold_with_it() {
    let lapsing = Lapsing { store: Memory::new(), seen: Arc::default() };
    let (theirs, ours) = (over(lapsing.store.clone()), over(Bent(lapsing.clone())));
    let held = theirs.mutex("a").acquire().await.expect("free");
    let waiting = tokio::spawn(async move { ours.mutex("a").acquire().await });
    lapsing.until(|seen| seen.entered.is_some()).await;
    let entered = lapsing.seen.borrow().entered.expect("just seen");
    // When so little is left of its time that a grant is confirmed, and the time runs out meanwhile.
    sleep_until(entered + TRUSTED * 6 / 10).await;
    held.release().await.expect("held");

    let guard = waiting.await.expect("no panic").expect("granted");
    lapsing.see(|seen| seen.confirmed = true);
    if lapsing.seen.borrow().leaving {
        lapsing.until(|seen| seen.left).await;
    }
    let other = theirs.mutex("a").try_acquire().await.expect("asked");
    assert!(other.is_none() || guard.check().is_err(), "two hold");
}
