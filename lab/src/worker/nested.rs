//! A lock that is taken once, or again and again by the same owner.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use leasehold::{Guard, Lock, LossReason, Owner, Reentrant, ReentrantGuard, Token};

use super::hold::Held;
use super::recorder::Recorder;

/// Of so many releases one is looked at while it is under way, as that costs a question.
const INSPECTED: u64 = 4;

/// What is asked for.
pub(super) enum Acquisition {
    Once(Lock),
    Reentrancy(Reentrancy),
}

/// By whom, and how many times more at most.
#[derive(Clone)]
pub(super) struct Reentrancy {
    pub(super) lock: Reentrant,
    pub(super) owner: Owner,
    pub(super) most: u32,
}

/// What is held.
pub(super) enum Acquired {
    Once(Guard),
    Reentrancy(Reentrancy, ReentrantGuard),
}

impl Acquisition {
    pub(super) async fn acquire(&self) -> leasehold::Result<Acquired> {
        match self {
            Self::Once(lock) => lock.acquire().await.map(Acquired::Once),
            Self::Reentrancy(again) => Ok(Acquired::Reentrancy(
                again.clone(),
                again.lock.acquire(&again.owner).await?,
            )),
        }
    }
}

impl Acquired {
    fn guard(&self) -> &Guard {
        match self {
            Self::Once(guard) => guard,
            Self::Reentrancy(_, guard) => guard,
        }
    }

    /// The inner error is that of the library.
    pub(super) async fn release(self, recorder: Recorder<'_>) -> Result<leasehold::Result<()>> {
        let (again, outer) = match self {
            Self::Once(guard) => return Ok(guard.release().await),
            Self::Reentrancy(again, outer) => (again, outer),
        };
        let token = outer.token();
        let mut releasing = pin!(outer.release());
        let done = polled(releasing.as_mut());
        if token.get().is_multiple_of(INSPECTED) {
            still_held(recorder, &again, token)?;
        }
        match done {
            Poll::Ready(done) => Ok(done),
            Poll::Pending => Ok(releasing.await),
        }
    }
}

/// Its owner must not find any more what is being released. If it is found, that is told as one more guard, for which no history
/// has room then.
fn still_held(recorder: Recorder<'_>, again: &Reentrancy, token: Token) -> Result<()> {
    // Of no hand: it is none of the cycles that are told.
    let lock = again.lock.clone().configure(|lock| lock.label(""));
    match polled(pin!(lock.try_acquire(&again.owner))) {
        Poll::Ready(Ok(Some(guard))) if guard.token() == token => {
            recorder.nested(token, guard.count())
        }
        _ => Ok(()),
    }
}

impl Held for Acquired {
    fn token(&self) -> Token {
        self.guard().token()
    }

    fn remaining(&self) -> Duration {
        self.guard().remaining()
    }

    fn loss(&self) -> Option<LossReason> {
        self.guard().loss()
    }

    /// As many times as the token says, each answered at once.
    fn nest(&self, recorder: Recorder<'_>) -> Result<Vec<ReentrantGuard>> {
        let (mut inner, Self::Reentrancy(again, _)) = (Vec::new(), self) else {
            return Ok(Vec::new());
        };
        for _ in 0..self.token().get() % (u64::from(again.most) + 1) {
            match polled(pin!(again.lock.acquire(&again.owner))) {
                Poll::Ready(Ok(guard)) => {
                    recorder.nested(guard.token(), guard.count())?;
                    inner.push(guard);
                }
                Poll::Ready(Err(error)) if error.is_lost() => break,
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => bail!("a nested acquire waits"),
            }
        }
        Ok(inner)
    }

    /// In turn by releasing and by dropping.
    fn unnest(
        &self,
        recorder: Recorder<'_>,
        inner: &mut Vec<ReentrantGuard>,
        kept: usize,
    ) -> Result<()> {
        let Self::Reentrancy(_, outer) = self else {
            return Ok(());
        };
        while inner.len() > kept
            && let Some(guard) = inner.pop()
        {
            if inner.len().is_multiple_of(2) {
                ensure!(
                    polled(pin!(guard.release())).is_ready(),
                    "a nested release waits"
                );
            } else {
                drop(guard);
            }
            recorder.unnested(outer.count())?;
        }
        Ok(())
    }
}

/// What it says at once.
fn polled<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
