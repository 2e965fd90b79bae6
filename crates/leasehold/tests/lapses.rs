//! What becomes of a waiter whose time in line runs out at the very moment of its grant.
#![allow(missing_docs)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::stores::Memory;
use leasehold::{Claim, Entered, Error, Line, Name, Patience, Promises, Result, Standing, Store};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// For so long a place in line is trusted.
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
impl Store for Lapsing {
    fn promises(&self) -> Promises {
        self.store.promises()
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

    fn anchors(&self, claim: &Claim) -> Result<Vec<OwnedFd>> {
        self.store.anchors(claim)
    }

    async fn look(&self, name: &Name) -> Result<Line> {
        self.store.look(name).await
    }

    async fn names(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.store.names(prefix, count_max).await
    }
}

/// The claim was taken out of the line because its time had run out, while its grant was confirmed: its guard was good, and
/// the lock was free.
#[tokio::test]
async fn a_place_in_line_that_has_run_out_takes_no_hold_with_it() {
    let lapsing = Lapsing { store: Memory::new(), seen: Arc::default() };
    let theirs = leasehold::over(lapsing.store.clone(), "memory:").expect("it runs");
    let ours = leasehold::over(lapsing.clone(), "memory:").expect("it runs");
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
