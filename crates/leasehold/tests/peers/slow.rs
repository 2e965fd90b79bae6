//! A store whose answers take their time, or do not come.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold::stores::Memory;
use leasehold::{Claim, Entered, Error, Line, Locks, Name, Patience, Promises, Result, Standing, Store};

/// How long an answer takes.
pub(crate) const SLOW: Duration = Duration::from_millis(700);

#[derive(Clone, Debug)]
pub(crate) struct Slow {
    store: Memory,
    switches: Arc<Switches>,
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Answers to entering and renewing are late.
    pub(crate) late: AtomicBool,
    /// Renewals are not answered.
    pub(crate) deaf: AtomicBool,
    /// When what was answered last had been asked.
    asked: Mutex<Option<Instant>>,
}

impl Slow {
    pub(crate) fn locks(store: &Memory) -> (Locks, Arc<Switches>) {
        let switches = Arc::<Switches>::default();
        let slow = Self { store: store.clone(), switches: Arc::clone(&switches) };
        (leasehold::over(slow, "memory:").expect("the background thread runs"), switches)
    }

    async fn answered<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let asked = Instant::now();
        let answer = answer.await;
        if self.switches.late.load(Ordering::SeqCst) {
            tokio::time::sleep(SLOW).await;
        }
        *self.switches.asked.lock().expect("nobody panics with it") = Some(asked);
        answer
    }
}

impl Switches {
    pub(crate) fn asked(&self) -> Instant {
        self.asked.lock().expect("nobody panics with it").expect("something was asked")
    }
}

#[async_trait]
impl Store for Slow {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn enter(&self, claim: &Claim, patience: Patience) -> Result<Entered> {
        self.answered(self.store.enter(claim, patience)).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.store.changed(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        if self.switches.deaf.load(Ordering::SeqCst) {
            return Err(Error::unavailable("it is deaf"));
        }
        self.answered(self.store.renew(claims)).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.store.leave(claim).await
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
