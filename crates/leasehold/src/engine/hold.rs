//! What a guard holds.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use super::depart::depart;
use super::validity::{End, Validity};
use super::{Engine, StoreCalls, calls};
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::BootInstant;
use crate::runtime::detached::Detached;
use crate::{
    Claim, Error, LossReason, OnContention, RenewalStatus, Result, ServerVote, Share, Standing,
    Token,
};

/// A granted claim. Dropping it leaves in the background.
#[derive(Debug)]
pub(crate) struct Hold {
    engine: Arc<Engine>,
    validity: Arc<Validity>,
    token: Token,
    departed: bool,
    /// Taken by every request to give back a part, and by departing: leaving must not overtake entering here either.
    downgrading: Arc<AsyncMutex<()>>,
}

impl Hold {
    pub(super) fn new(engine: Arc<Engine>, validity: Arc<Validity>, token: Token) -> Self {
        Self {
            engine,
            validity,
            token,
            departed: false,
            downgrading: Arc::default(),
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.validity.claim
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.validity
            .check()
            .map_err(|error| self.with_context("use", error))
    }

    /// The error of using it although it is over.
    pub(crate) fn error(&self) -> Error {
        self.with_context("use", self.validity.error())
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.validity.ending().and_then(End::loss)
    }

    pub(crate) fn renewal(&self) -> RenewalStatus {
        self.validity.renewal()
    }

    pub(crate) fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        self.check()?;
        self.engine.calls.inheritable_fds(&self.validity.claim)
    }

    pub(crate) fn votes(&self) -> Vec<ServerVote> {
        self.engine.calls.votes(&self.validity.claim)
    }

    /// How long it may be trusted from now; `Duration::MAX` without end.
    pub(crate) fn remaining(&self) -> Duration {
        self.validity.valid_until().map_or(Duration::ZERO, |until| {
            until.duration_since(BootInstant::now())
        })
    }

    /// Resolves when it is lost, as the renewal task, the clock or the store says it first.
    pub(crate) async fn lost(&self) -> LossReason {
        let held = Standing::Held { token: self.token };
        let mut backoff = Backoff::default();
        loop {
            tokio::select! {
                biased;
                ending = self.validity.ended() => match ending {
                    End::Lost(loss) => return loss,
                    End::Left => std::future::pending().await,
                },
                reply = self.engine.calls.changed(&self.validity.claim, held) => match reply {
                    Ok(standing) if standing.token() == Some(self.token) => {}
                    Ok(_) => { self.validity.revoke(); }
                    // Not knowing is not losing: the lease decides, and the store is asked again.
                    Err(_) => backoff.wait().await,
                },
            }
        }
    }

    /// Resolves once no more than `margin` is left, or the hold is lost.
    pub(crate) async fn until_remaining(&self, margin: Duration) {
        let mut lost = pin!(self.lost());
        loop {
            let Some(left) = self
                .remaining()
                .checked_sub(margin)
                .filter(|left| !left.is_zero())
            else {
                return;
            };
            // Short sleeps: a renewal may come meanwhile, and a suspended machine's timers are late.
            tokio::select! {
                () = tokio::time::sleep(left.min(Duration::from_secs(1))) => {}
                _ = &mut lost => return,
            }
        }
    }

    /// Gives back all but `share`, keeping place and token.
    pub(crate) async fn change_share(&self, share: Share) -> Result<()> {
        self.check()?;
        let claim = Claim {
            share,
            ..Claim::clone(&self.validity.claim)
        };
        let (calls, token, alone) = (
            self.engine.calls.clone(),
            self.token,
            Arc::clone(&self.downgrading),
        );
        let send = Detached::new(async move {
            let _alone = alone.lock_owned().await;
            shrink_share(calls, claim, token).await
        });
        if send.await? {
            return Ok(());
        }
        self.validity.revoke();
        self.check()
    }

    /// Leaves and waits for the store's word, which is not worth much waiting if the hold is over.
    pub(crate) async fn release(mut self) -> Result<()> {
        const LOST_WAIT_MAX: Duration = Duration::from_secs(1);
        let lost = self.validity.ending().map(|_| self.validity.error());
        let reply_timeout = if lost.is_some() {
            LOST_WAIT_MAX
        } else {
            calls::REPLY_TIMEOUT
        };
        let departing = self.depart();
        let reply = tokio::time::timeout(reply_timeout, departing).await;
        let there = reply.unwrap_or_else(|_| {
            Err(calls::timed_out(reply_timeout).help("it is still being tried"))
        });
        let released = match (lost, there) {
            (None, Ok(true)) => Ok(()),
            (None, Ok(false)) => Err(LossReason::Revoked.error()),
            (Some(error), _) | (None, Err(error)) => Err(error),
        };
        released.map_err(|error| self.with_context("release", error))
    }

    /// Not valid any more from here on, before any request leaves.
    fn depart(&mut self) -> Detached<Result<bool>> {
        self.departed = true;
        self.validity.end(End::Left);
        self.engine.renewals.remove(self.validity.claim.id);
        let (calls, claim) = (self.engine.calls.clone(), Arc::clone(&self.validity.claim));
        let alone = Arc::clone(&self.downgrading);
        Detached::new(async move {
            let _alone = alone.lock_owned().await;
            depart(calls, claim, None).await
        })
    }

    fn with_context(&self, operation: &'static str, error: Error) -> Error {
        error.during(
            operation,
            self.engine.calls.url(),
            Some(self.validity.claim.name.as_str()),
        )
    }
}

/// Enters again with a smaller share; says whether the hold goes on. A claim that was gone has got in line anew, where
/// nobody wants it: it leaves at once.
async fn shrink_share(calls: StoreCalls, claim: Claim, token: Token) -> Result<bool> {
    let (_, entered) = calls.enter(&claim, OnContention::Fail).await?;
    let goes_on = entered.standing.token() == Some(token);
    if !goes_on {
        depart(calls, Arc::new(claim), None).await?;
    }
    Ok(goes_on)
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.departed {
            drop(self.depart());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use async_trait::async_trait;

    use super::*;
    use crate::engine::acquire::{AcquireOptions, WaitLimit, acquire};
    use crate::engine::intercept::{Intercept, Intercepted};
    use crate::{Name, Store, stores};

    /// Notes whether a hold was still good when the store was asked to end it.
    #[derive(Debug)]
    struct ReleaseObserver {
        store: stores::Memory,
        watched: Arc<OnceLock<Arc<Validity>>>,
        was_valid: Arc<OnceLock<bool>>,
    }

    #[async_trait]
    impl Intercept for ReleaseObserver {
        fn inner(&self) -> &stores::Memory {
            &self.store
        }

        async fn leave(&self, claim: &Claim) -> Result<bool> {
            let validity = self.watched.get().expect("it was granted");
            self.was_valid
                .set(validity.check().is_ok())
                .expect("it is asked once");
            self.store.leave(claim).await
        }
    }

    /// By releasing and by dropping.
    #[tokio::test]
    async fn hold_is_invalid_before_release_is_sent() {
        for is_dropped in [false, true] {
            let (watched, was_valid) = (
                Arc::<OnceLock<Arc<Validity>>>::default(),
                Arc::<OnceLock<bool>>::default(),
            );
            let (there, heard) = (Arc::clone(&watched), Arc::clone(&was_valid));
            let store = ReleaseObserver {
                store: stores::Memory::new(),
                watched: there,
                was_valid: heard,
            };
            let engine = Engine::new(Arc::new(Intercepted(store)), "memory:").expect("it starts");
            let (name, lease) = (Name::parse("a").expect("a name"), Duration::from_secs(30));
            let (share, label) = (Share::MUTEX, String::new());
            let options = AcquireOptions {
                name,
                share,
                lease,
                label,
                no_renewal: false,
                max_hold: None,
            };
            let hold = acquire(&engine, &options, WaitLimit::Forever)
                .await
                .expect("asked")
                .expect("granted");
            watched.set(Arc::clone(&hold.validity)).expect("once");
            assert!(hold.check().is_ok());
            if is_dropped {
                drop(hold);
                crate::drain().await;
            } else {
                hold.release().await.expect("released");
            }
            assert_eq!(
                was_valid.get(),
                Some(&false),
                "good while its release was asked, dropped: {is_dropped}"
            );
        }
    }
}
