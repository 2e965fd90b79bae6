//! What a guard holds.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;

use super::depart::depart;
use super::stay::{Ending, Stay};
use super::{Door, Engine, call};
use crate::background::Finish;
use crate::clock::Moment;
use crate::{Claim, Error, Loss, Patience, Renewal, Result, Share, Standing, Token, Vote};

/// A granted claim. Dropping it leaves in the background.
#[derive(Debug)]
pub(crate) struct Hold {
    engine: Arc<Engine>,
    stay: Arc<Stay>,
    token: Token,
    departed: bool,
    /// Taken by every request to give back a part, and by departing: leaving must not overtake entering here either.
    asking: Arc<AsyncMutex<()>>,
}

impl Hold {
    pub(super) fn new(engine: Arc<Engine>, stay: Arc<Stay>, token: Token) -> Self {
        Self { engine, stay, token, departed: false, asking: Arc::default() }
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

    pub(crate) fn votes(&self) -> Vec<Vote> {
        self.engine.door.votes(&self.stay.claim)
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
                    Ok(_) => { self.stay.gone(); }
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
        let claim = Claim { share, ..Claim::clone(&self.stay.claim) };
        let (door, token, alone) = (self.engine.door.clone(), self.token, Arc::clone(&self.asking));
        let asking = Finish::new(async move {
            let _alone = alone.lock_owned().await;
            keep_part(door, claim, token).await
        });
        if asking.await? {
            return Ok(());
        }
        self.stay.gone();
        self.check()
    }

    /// Leaves and waits for the store's word, which is not worth much waiting if the hold is over.
    pub(crate) async fn release(mut self) -> Result<()> {
        const LOST_MAX: Duration = Duration::from_secs(1);
        let lost = self.stay.ending().map(|_| self.stay.over());
        let patience = if lost.is_some() { LOST_MAX } else { call::ANSWER_MAX };
        let departing = self.depart();
        let answer = tokio::time::timeout(patience, departing).await;
        let there = answer.unwrap_or_else(|_| Err(call::silent(patience).remedy("it is still being tried")));
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
        let (door, claim) = (self.engine.door.clone(), Arc::clone(&self.stay.claim));
        let alone = Arc::clone(&self.asking);
        Finish::new(async move {
            let _alone = alone.lock_owned().await;
            depart(door, claim, None).await
        })
    }

    fn placed(&self, operation: &'static str, error: Error) -> Error {
        error.at(operation, self.engine.door.place(), Some(self.stay.claim.name.as_str()))
    }
}

/// Enters again with a smaller share; says whether the hold goes on. A claim that was gone has got in line anew, where
/// nobody wants it: it leaves at once.
async fn keep_part(door: Door, claim: Claim, token: Token) -> Result<bool> {
    let (_, entered) = door.enter(&claim, Patience::Refuse).await?;
    let goes_on = entered.standing.token() == Some(token);
    if !goes_on {
        depart(door, Arc::new(claim), None).await?;
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
    use crate::engine::acquire::{Ask, Wait, acquire};
    use crate::engine::bent::{Bend, Bent};
    use crate::{Name, Store, stores};

    /// Notes whether a hold was still good when the store was asked to end it.
    #[derive(Debug)]
    struct Witness {
        store: stores::Memory,
        watched: Arc<OnceLock<Arc<Stay>>>,
        was_good: Arc<OnceLock<bool>>,
    }

    #[async_trait]
    impl Bend for Witness {
        fn straight(&self) -> &stores::Memory {
            &self.store
        }

        async fn leave(&self, claim: &Claim) -> Result<bool> {
            let stay = self.watched.get().expect("it was granted");
            self.was_good.set(stay.check().is_ok()).expect("it is asked once");
            self.store.leave(claim).await
        }
    }

    /// By releasing and by dropping.
    #[tokio::test]
    async fn a_hold_is_over_before_its_release_is_asked() {
        for is_dropped in [false, true] {
            let (watched, was_good) = (Arc::<OnceLock<Arc<Stay>>>::default(), Arc::<OnceLock<bool>>::default());
            let (there, heard) = (Arc::clone(&watched), Arc::clone(&was_good));
            let store = Witness { store: stores::Memory::new(), watched: there, was_good: heard };
            let engine = Engine::new(Arc::new(Bent(store)), "memory:").expect("it starts");
            let (name, lease) = (Name::parse("a").expect("a name"), Duration::from_secs(30));
            let (share, label) = (Share::MUTEX, String::new());
            let ask = Ask { name, share, lease, label, fixed: false, hold_max: None };
            let hold = acquire(&engine, &ask, Wait::Forever).await.expect("asked").expect("granted");
            watched.set(Arc::clone(&hold.stay)).expect("once");
            assert!(hold.check().is_ok());
            if is_dropped {
                drop(hold);
                crate::drain().await;
            } else {
                hold.release().await.expect("released");
            }
            assert_eq!(was_good.get(), Some(&false), "good while its release was asked, dropped: {is_dropped}");
        }
    }
}
