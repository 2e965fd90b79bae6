//! A store whose replies are late or missing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold::store::{Claim, Entered, Extensions, OnContention, Standing, Store};
use leasehold::stores::Memory;
use leasehold::{Error, Guarantees, LockState, Locks, Name, Result};

/// How late a late reply is.
pub(crate) const SLOW: Duration = Duration::from_millis(700);

#[derive(Clone, Debug)]
pub(crate) struct Slow {
    store: Memory,
    switches: Arc<Switches>,
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Replies to enter and renew are late.
    pub(crate) late: AtomicBool,
    /// Renewals have no reply.
    pub(crate) drops_replies: AtomicBool,
    /// When the request of the last reply was sent.
    requested: Mutex<Option<Instant>>,
}

impl Slow {
    pub(crate) fn locks(store: &Memory) -> (Locks, Arc<Switches>) {
        let switches = Arc::<Switches>::default();
        let slow = Self {
            store: store.clone(),
            switches: Arc::clone(&switches),
        };
        (
            leasehold::Locks::from_store(slow, "memory:").expect("the background thread runs"),
            switches,
        )
    }

    async fn delayed<T>(&self, reply: impl Future<Output = Result<T>>) -> Result<T> {
        let sent_at = Instant::now();
        let reply = reply.await;
        if self.switches.late.load(Ordering::SeqCst) {
            tokio::time::sleep(SLOW).await;
        }
        *self
            .switches
            .requested
            .lock()
            .expect("no panic while it is locked") = Some(sent_at);
        reply
    }
}

impl Switches {
    pub(crate) fn requested(&self) -> Instant {
        self.requested
            .lock()
            .expect("no panic while it is locked")
            .expect("a request was sent")
    }
}

#[async_trait]
impl Store for Slow {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn enter(&self, claim: &Claim, on_contention: OnContention) -> Result<Entered> {
        self.delayed(self.store.enter(claim, on_contention)).await
    }

    async fn changed(&self, claim: &Claim, seen: Standing) -> Result<Standing> {
        self.store.changed(claim, seen).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Option<Duration>>> {
        if self.switches.drops_replies.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the renewal has no reply"));
        }
        self.delayed(self.store.renew(claims)).await
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        self.store.leave(claim).await
    }

    fn extensions(&self) -> Extensions<'_> {
        self.store.extensions()
    }

    async fn inspect(&self, name: &Name) -> Result<LockState> {
        self.store.inspect(name).await
    }

    async fn list(&self, prefix: &str, count_max: usize) -> Result<Vec<Name>> {
        self.store.list(prefix, count_max).await
    }
}
