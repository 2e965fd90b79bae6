//! Locks that are acquired once, or several times by the same owner.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use leasehold::{Guard, Lock, LossReason, Owner, Reentrant, ReentrantGuard, Token};

use super::hold::Held;
use super::recorder::Recorder;

/// One of this number of releases is checked while it is in progress, because the check costs a
/// request.
const INSPECTED: u64 = 4;

/// What a worker acquires.
pub(super) enum Acquisition {
    Once(Lock),
    Reentrancy(Reentrancy),
}

/// The owner, and how many times it acquires the lock again.
#[derive(Clone)]
pub(super) struct Reentrancy {
    pub(super) lock: Reentrant,
    pub(super) owner: Owner,
    pub(super) most: u32,
}

/// What a worker holds.
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

    /// The inner result is that of the library.
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

/// Checks that the owner cannot reenter a hold that is being released. If it can, this records one
/// more nested guard, which contradicts the history.
fn still_held(recorder: Recorder<'_>, again: &Reentrancy, token: Token) -> Result<()> {
    // The label is empty: this claim belongs to none of the recorded cycles.
    let lock = again.lock.clone().configure(|lock| lock.label(""));
    match polled(pin!(lock.try_acquire(&again.owner))) {
        Poll::Ready(Ok(Ok(guard))) if guard.token() == token => {
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

    /// Acquires as many times as the token says. Each call must return immediately.
    fn nest(&self, recorder: Recorder<'_>) -> Result<Vec<ReentrantGuard>> {
        let Self::Reentrancy(again, _) = self else {
            return Ok(Vec::new());
        };
        let mut inner = Vec::new();

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

    /// Releases and drops the guards in turn.
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

/// Polls a future once.
fn polled<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
