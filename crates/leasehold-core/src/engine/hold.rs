//! The granted claim of a guard.

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tracing::Span;

use super::calls::WeakStoreCalls;
use super::depart::{PendingEntry, complete, depart};
use super::events::{GrantedAcquire, HoldEvents, contained, failed, inside};
use super::validity::{End, Validity, safe_duration};
use super::{Engine, StoreCalls, StoreId, calls};
use crate::runtime::background::Detached;
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::runtime::fork::is_forked;
use crate::{
    Claim, Completion, Error, Guarantees, LossReason, OnContention, RenewalStatus, Result,
    ServerVote, Share, Token,
};

/// A granted claim. Dropping it releases the lock in the background.
pub(crate) struct Hold {
    engine: Arc<Engine>,
    validity: Arc<Validity>,
    token: Token,
    /// The token with which the store knows the claim. It is the largest one that the grant has
    /// reserved.
    store_token: Token,
    /// `None` if the hold is not passed on, and once it was or has departed.
    pass_on: Option<Box<dyn PassOn>>,
    departed: bool,
    /// Every downgrade takes this mutex, which the first one creates. The departure takes it too:
    /// leaving must not overtake entering.
    downgrading: OnceLock<Arc<AsyncMutex<()>>>,
}

impl Hold {
    pub(super) fn new(engine: Arc<Engine>, validity: Arc<Validity>, token: Token) -> Self {
        Self {
            engine,
            validity,
            token,
            store_token: token,
            pass_on: None,
            departed: false,
            downgrading: OnceLock::new(),
        }
    }

    /// Creates a hold that can be passed on.
    pub(super) fn passable(origin: Origin, token: Token, pass_on: Box<dyn PassOn>) -> Self {
        let mut hold = Self::new(origin.engine, origin.validity, token);
        hold.store_token = origin.store_token;
        hold.pass_on = Some(pass_on);
        hold
    }

    /// Returns what the next hold of the claim takes from this one.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            engine: Arc::clone(&self.engine),
            validity: Arc::clone(&self.validity),
            store_token: self.store_token,
        }
    }

    /// Drops the hold without leaving: another one has the claim now.
    pub(super) fn forget(mut self) {
        self.departed = true;
    }

    pub(super) fn log_grant(&self, acquire: &GrantedAcquire) {
        if let Some(events) = self.validity.events() {
            events.granted(&self.validity.claim, acquire);
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    #[allow(dead_code, reason = "only the simulation reads it")]
    pub(crate) fn validity(&self) -> Arc<Validity> {
        Arc::clone(&self.validity)
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.validity.claim
    }

    pub(crate) fn guarantees(&self) -> Guarantees {
        self.engine.calls.guarantees()
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.validity
            .check()
            .map_err(|error| self.with_context("use", error))
    }

    pub(crate) fn watch(&self) -> HoldWatch {
        HoldWatch {
            calls: self.engine.calls.downgrade(),
            validity: Arc::clone(&self.validity),
            store_token: self.store_token,
        }
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.engine.calls.store_id()
    }

    pub(crate) fn store_url(&self) -> &str {
        self.engine.calls.url()
    }

    /// Returns the error of using a hold that has ended.
    pub(crate) fn error(&self) -> Error {
        self.with_context("use", self.validity.error())
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.validity.ending().and_then(End::loss)
    }

    pub(crate) fn renewal(&self) -> RenewalStatus {
        self.validity.renewal()
    }

    /// Returns why the store replies to no request; `None` while it replies.
    pub(crate) fn outage_error(&self) -> Option<Error> {
        self.engine.calls.outage_error()
    }

    pub(crate) fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.check()?;
        self.engine.calls.inheritable_fds(&self.validity.claim)
    }

    pub(crate) fn check_statement(&self) -> Option<(String, String)> {
        self.engine.calls.check_statement(&self.claim().name)
    }

    pub(crate) fn votes(&self) -> Vec<ServerVote> {
        self.engine.calls.votes(&self.validity.claim)
    }

    /// Returns how long the hold stays valid from now; `Duration::MAX` if it has no end.
    pub(crate) fn remaining(&self) -> Duration {
        self.validity.remaining()
    }

    /// Waits for the loss.
    pub(crate) async fn lost(&self) -> LossReason {
        match self.watch().ended().await {
            End::Lost(reason) => reason,
            // The guard that calls this would have to be gone.
            End::Left => std::future::pending().await,
        }
    }

    /// Waits until no more than `margin` remains, or the hold is lost.
    pub(crate) async fn until_remaining(&self, margin: Duration) {
        const SLEEP_MAX: Duration = Duration::from_secs(1);
        let mut lost = pin!(self.lost());

        loop {
            let until_margin = self.remaining().saturating_sub(margin);
            if until_margin.is_zero() {
                return;
            }

            // Short sleeps: a renewal may extend the hold, and timers are late after a suspend.
            tokio::select! {
                biased;
                () = tokio::time::sleep(until_margin.min(SLEEP_MAX)) => {}
                _ = &mut lost => return,
            }
        }
    }

    /// Gives back everything but `share`, and keeps position and token.
    pub(crate) async fn change_share(&self, share: Share) -> Result<()> {
        self.check()?;

        let mut claim = Claim::clone(&self.validity.claim);
        claim.share = share;
        if !claim.auto_renew {
            // The store begins the lease again, and a fixed one still ends on time, with the margin
            // that the store has beyond the validity.
            let left = self
                .validity
                .claim_ends_at()
                .duration_since(BootInstant::now());
            let margin = claim.lease.saturating_sub(safe_duration(claim.lease));
            claim.lease = claim.lease.min(left.saturating_add(margin));
        }
        let calls = self.engine.calls.clone();
        let token = self.store_token;
        let validity = Arc::clone(&self.validity);
        let alone = Arc::clone(self.downgrading.get_or_init(Arc::default));
        let shrinking = Detached::new(async move {
            let _alone = alone.lock_owned().await;
            shrink_share(calls, claim, token, &validity).await
        });

        shrinking.await?;
        self.check()
    }

    /// Releases the lock and waits for the reply; only for a short time if the hold is lost.
    ///
    /// If the hold can be passed on inside the process, no request is sent.
    pub(crate) async fn release(mut self) -> Result<()> {
        self.check_not_forked("release")?;
        if self.pass() {
            return Ok(());
        }
        self.end(None).await
    }

    /// Records what was completed and releases the lock, in one step of the store. A hold that is
    /// lost records nothing.
    pub(crate) async fn complete(self, completion: Completion) -> Result<()> {
        self.check_not_forked("complete")?;
        self.end(Some(completion)).await
    }

    /// Fails in a fork, where the hold is that of the parent.
    fn check_not_forked(&self, operation: &'static str) -> Result<()> {
        if is_forked() {
            return Err(self.with_context(operation, self.validity.error()));
        }
        Ok(())
    }

    /// Leaves in the step that has checked for a fork.
    async fn end(mut self, completion: Option<Completion>) -> Result<()> {
        const LOST_WAIT_MAX: Duration = Duration::from_secs(1);
        let (operation, help) = match completion {
            None => (
                "release",
                "the background thread repeats the release while the store is open",
            ),
            Some(_) => (
                "complete",
                "no reply shows that it was recorded, so it may run again",
            ),
        };
        let lost = self.validity.ending_here().map(|_| self.validity.error());
        let reply_timeout = match lost {
            Some(_) => LOST_WAIT_MAX,
            None => calls::REPLY_TIMEOUT,
        };

        let departing = self.depart(completion.filter(|_| lost.is_none()));
        let reply = match tokio::time::timeout(reply_timeout, departing).await {
            Ok(reply) => reply,
            Err(_elapsed) => Err(calls::timed_out(reply_timeout).help(help)),
        };

        let released = match (lost, reply) {
            (None, Ok(true)) => Ok(()),
            (None, Ok(false)) => Err(LossReason::Revoked.error()),
            (Some(error), _) | (None, Err(error)) => Err(error),
        };
        released.map_err(|error| self.with_context(operation, error))
    }

    /// Passes the hold to another acquire of this process; returns whether one waited.
    fn pass(&mut self) -> bool {
        let Some(pass_on) = self.pass_on.take() else {
            return false;
        };
        let events = self.validity.events();
        let held = events.map(HoldEvents::held);
        self.departed = pass_on.pass(self);

        if let (true, Some(events), Some(held)) = (self.departed, events, held) {
            let claim = &self.validity.claim;
            contained(|| {
                let span = events.take_span();
                let release = events.release_span(claim, &span);
                release.in_scope(|| events.released(claim, held));
            });
        }
        self.departed
    }

    /// Ends the validity, before any request is sent, and then leaves.
    ///
    /// With a completion, the result says whether it was recorded.
    fn depart(&mut self, completion: Option<Completion>) -> Detached<Result<bool>> {
        self.departed = true;
        self.validity.end(End::Left);
        self.engine.renewals.remove(self.validity.claim.id);

        let calls = self.engine.calls.clone();
        let validity = Arc::clone(&self.validity);
        let downgrading = self.downgrading.get().cloned();
        let events = validity.events();
        let held = events.map(HoldEvents::held);
        let hold_span = events.map_or_else(Span::none, HoldEvents::take_span);
        let span = events
            .and_then(|events| contained(|| events.release_span(&validity.claim, &hold_span)))
            .unwrap_or_else(Span::none);
        let instrumented_by = span.clone();
        let departure = async move {
            let _alone = match &downgrading {
                Some(downgrading) => Some(downgrading.lock().await),
                None => None,
            };
            let claim = Arc::clone(&validity.claim);
            let left = match completion {
                None => depart(calls, claim, PendingEntry::Replied).await,
                // The box keeps the future of every release small.
                Some(completion) => Box::pin(complete(calls, claim, completion)).await,
            };

            if let (Ok(was_there), Some(held), Some(events)) = (&left, held, validity.events())
                && validity.recorded_end() == Some(End::Left)
            {
                contained(|| {
                    if *was_there {
                        events.released(&validity.claim, held);
                    } else {
                        // The store had ended the hold, which nothing else has noticed.
                        events.lost(&validity.claim, LossReason::Revoked, held, &hold_span);
                        failed(&span, LossReason::Revoked.as_str());
                    }
                });
            }
            if let Err(error) = &left {
                contained(|| failed(&span, error.kind().as_str()));
            }
            contained(|| drop(hold_span));
            left
        };
        Detached::new(inside(instrumented_by, departure))
    }

    /// Adds the store and the name of the lock.
    pub(crate) fn with_context(&self, operation: &'static str, error: Error) -> Error {
        let name = self.validity.claim.name.as_str();
        error.during(operation, self.engine.calls.url(), Some(name))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // In a fork the hold is that of the parent.
        if !self.departed && !is_forked() && !self.pass() {
            drop(self.depart(None));
        }
    }
}

/// Observes a hold, and does not keep it.
#[derive(Clone)]
pub(crate) struct HoldWatch {
    calls: WeakStoreCalls,
    validity: Arc<Validity>,
    store_token: Token,
}

impl HoldWatch {
    /// Waits for the end, which the guard, the renewal task, the clock or the store may report
    /// first.
    pub(crate) async fn ended(&self) -> End {
        let mut backoff = Backoff::default();
        loop {
            tokio::select! {
                biased;
                end = self.validity.ended() => return end,
                () = self.lost(&mut backoff) => {
                    self.validity.revoke();
                }
            }
        }
    }

    /// Waits until the claim no longer holds.
    ///
    /// An error does not prove a loss: the lease decides, and the client retries.
    async fn lost(&self, backoff: &mut Backoff) {
        loop {
            let Some(calls) = self.calls.upgrade() else {
                // The guard was dropped, so the hold has ended.
                return std::future::pending().await;
            };
            match calls.lost(&self.validity.claim, self.store_token).await {
                Ok(()) => return,
                Err(_) => backoff.wait().await,
            }
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let name = self.validity.claim.name.as_str();
        self.validity
            .check()
            .map_err(|error| error.during("use", self.calls.url(), Some(name)))
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.validity.ending().and_then(End::loss)
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.validity.remaining()
    }
}

impl fmt::Debug for HoldWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldWatch")
            .field("name", &self.validity.claim.name.as_str())
            .field("store", &self.calls.url())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.claim().name.as_str())
            .field("store", &self.store_url())
            .field("token", &self.token.get())
            .finish_non_exhaustive()
    }
}

/// How a hold is passed to another acquire of this process when it is released.
pub(super) trait PassOn: fmt::Debug + Send + Sync {
    /// Returns whether an acquire waited and has the claim now.
    fn pass(&self, hold: &Hold) -> bool;
}

/// What the next hold of a claim takes from the one before.
pub(super) struct Origin {
    pub(super) engine: Arc<Engine>,
    pub(super) validity: Arc<Validity>,
    pub(super) store_token: Token,
}

/// Enters again with a smaller share.
///
/// The request keeps the token of a claim that is still there. For a store that has lost the claim,
/// it is a first request, which is even granted if the lock is free at that moment. Another claim
/// may have held the lock in between, so this hold must not go on. Only the token shows the
/// difference.
///
/// The new entry has no use, and leaves. The hold ends before that: the renewals know a claim by
/// its id alone, so a renewal that meets the new entry would otherwise extend the old hold.
async fn shrink_share(
    calls: StoreCalls,
    claim: Claim,
    token: Token,
    validity: &Validity,
) -> Result<()> {
    let entered = calls.enter(&claim, OnContention::Fail).await?;
    if entered.reply.standing.token() == Some(token) {
        return Ok(());
    }

    validity.revoke();
    depart(calls, Arc::new(claim), PendingEntry::Replied).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
