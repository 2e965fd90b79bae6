//! A store whose replies are late or missing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold::store::Store;
use leasehold::store::{Intercept, Intercepted, Request};
use leasehold::stores::Memory;
use leasehold::{Error, Locks, Result};

/// How late a late reply is.
pub(crate) const SLOW: Duration = Duration::from_millis(700);

#[derive(Debug)]
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
        let slow = Intercepted(Self {
            store: store.clone(),
            switches: Arc::clone(&switches),
        });

        let locks = Locks::from_store(slow, "memory:").expect("the background thread runs");
        (locks, switches)
    }
}

impl Switches {
    pub(crate) fn requested(&self) -> Instant {
        self.last_request().expect("a request was sent")
    }

    fn last_request(&self) -> MutexGuard<'_, Option<Instant>> {
        self.requested.lock().expect("no panic while it is locked")
    }
}

#[async_trait]
impl Intercept for Slow {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn around<T: Send>(
        &self,
        request: Request,
        reply: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if !matches!(request, Request::Enter | Request::Renew) {
            return reply.await;
        }
        let drops_replies = self.switches.drops_replies.load(Ordering::SeqCst);
        if drops_replies && request == Request::Renew {
            return Err(Error::unavailable("the renewal has no reply"));
        }

        let sent_at = Instant::now();
        let reply = reply.await;
        if self.switches.late.load(Ordering::SeqCst) {
            tokio::time::sleep(SLOW).await;
        }

        *self.switches.last_request() = Some(sent_at);
        reply
    }
}
