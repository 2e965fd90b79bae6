//! What a guard holds.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::depart::depart;
use super::stay::{Ending, Stay};
use super::{Engine, call};
use crate::background::Finish;
use crate::clock::Moment;
use crate::{Claim, Error, Loss, Patience, Renewal, Result, Share, Standing, Token};

/// A granted claim. Dropping it leaves in the background.
#[derive(Debug)]
pub(crate) struct Hold {
    engine: Arc<Engine>,
    stay: Arc<Stay>,
    token: Token,
    departed: bool,
}

impl Hold {
    pub(super) fn new(engine: Arc<Engine>, stay: Arc<Stay>, token: Token) -> Self {
        Self { engine, stay, token, departed: false }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.stay.claim
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.stay.check().map_err(|error| self.placed("use", error))
    }

    /// The error of using it although it is over.
    pub(crate) fn over(&self) -> Error {
        self.placed("use", self.stay.over())
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.stay.ending().and_then(Ending::loss)
    }

    pub(crate) fn renewal(&self) -> Renewal {
        self.stay.renewal()
    }

    pub(crate) fn anchors(&self) -> Result<Vec<OwnedFd>> {
        self.check()?;
        self.engine.door.anchors(&self.stay.claim)
    }

    /// How long it may be trusted from now; `Duration::MAX` without end.
    pub(crate) fn remaining(&self) -> Duration {
        self.stay.until().map_or(Duration::ZERO, |until| until.since(Moment::now()))
    }

    /// Resolves when it is lost, as the renewal task, the clock or the store says it first.
    pub(crate) async fn lost(&self) -> Loss {
        let held = Standing::Held { token: self.token };
        let mut pauses = call::Pauses::default();
        loop {
            tokio::select! {
                biased;
                ending = self.stay.ended() => match ending {
                    Ending::Lost(loss) => return loss,
                    Ending::Left => std::future::pending().await,
                },
                answer = self.engine.door.changed(&self.stay.claim, held) => match answer {
                    Ok(standing) if standing.token() == Some(self.token) => {}
                    Ok(_) => { self.stay.end(Ending::Lost(Loss::Gone)); }
                    // Not knowing is not losing: the lease decides, and the store is asked again.
                    Err(_) => pauses.next().await,
                },
            }
        }
    }

    /// Resolves once no more than `margin` is left, or the hold is lost.
    pub(crate) async fn ending_within(&self, margin: Duration) {
        let mut lost = pin!(self.lost());
        loop {
            let Some(left) = self.remaining().checked_sub(margin).filter(|left| !left.is_zero()) else { return };
            // Short sleeps: a renewal may come meanwhile, and a suspended machine's timers are late.
            tokio::select! {
                () = tokio::time::sleep(left.min(Duration::from_secs(1))) => {}
                _ = &mut lost => return,
            }
        }
    }

    /// Gives back all but `share`, keeping place and token.
    pub(crate) async fn reshare(&self, share: Share) -> Result<()> {
        self.check()?;
        let claim = Claim { share, ..self.stay.claim.clone() };
        let door = self.engine.door.clone();
        let asking = Finish::new(async move { door.enter(&claim, Patience::Queue).await });
        let (_, entered) = asking.await?;
        if entered.standing.token() == Some(self.token) {
            return Ok(());
        }
        self.stay.end(Ending::Lost(Loss::Gone));
        self.check()
    }

    /// Leaves and waits for the store's word.
    pub(crate) async fn release(mut self) -> Result<()> {
        let lost = self.stay.ending().map(|_| self.stay.over());
        let departing = self.depart();
        let answer = tokio::time::timeout(call::ANSWER_MAX, departing).await;
        let there = answer.unwrap_or_else(|_| Err(call::silent(call::ANSWER_MAX).remedy("it is still being tried")));
        let released = match (lost, there) {
            (None, Ok(true)) => Ok(()),
            (None, Ok(false)) => Err(Loss::Gone.error()),
            (Some(error), _) | (None, Err(error)) => Err(error),
        };
        released.map_err(|error| self.placed("release", error))
    }

    /// Not valid any more from here on, before any request leaves.
    fn depart(&mut self) -> Finish<Result<bool>> {
        self.departed = true;
        self.stay.end(Ending::Left);
        self.engine.renewals.remove(self.stay.claim.id);
        Finish::new(depart(self.engine.door.clone(), self.stay.claim.clone(), None))
    }

    fn placed(&self, operation: &'static str, error: Error) -> Error {
        error.at(operation, self.engine.door.place(), Some(self.stay.claim.name.as_str()))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.departed {
            drop(self.depart());
        }
    }
}
