//! A client whose requests and replies are lost, late or refused.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Service;
use super::support::{locks_over, store};
use leasehold_core::store::{Intercept, Intercepted, Request, Store};
use leasehold_core::{Error, Locks, Result};

/// A client whose requests meet injected faults.
pub(super) struct FaultyClient {
    pub(super) locks: Locks,
    pub(super) faults: Arc<InjectedFaults>,
}

impl FaultyClient {
    pub(super) async fn connect(service: &dyn Service) -> Self {
        let faults = Arc::new(InjectedFaults::default());
        let store = Intercepted(FaultyStore {
            store: store(service).await,
            faults: Arc::clone(&faults),
        });
        Self {
            locks: locks_over(Arc::new(store)),
            faults,
        }
    }
}

/// The faults of a [`FaultyStore`].
#[derive(Debug, Default)]
pub(super) struct InjectedFaults {
    calls: AtomicU32,
    enters: AtomicU32,
    last_call: Mutex<Option<Instant>>,
    next: Mutex<ReplyFault>,
    /// So many of the next requests do not reach the store.
    refused: AtomicU32,
    /// No request reaches the store.
    disconnected: AtomicBool,
}

impl InjectedFaults {
    /// The number of requests so far.
    pub(super) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The number of requests to enter so far.
    pub(super) fn enters(&self) -> u32 {
        self.enters.load(Ordering::SeqCst)
    }

    /// Whether a request was sent at this time or later.
    pub(super) fn has_calls_since(&self, time: Instant) -> bool {
        self.last_call.lock().is_some_and(|last| last >= time)
    }

    /// Injects a fault into the next request.
    pub(super) fn inject(&self, fault: ReplyFault) {
        *self.next.lock() = fault;
    }

    /// Lets this number of requests fail.
    pub(super) fn refuse(&self, count: u32) {
        self.refused.store(count, Ordering::SeqCst);
    }

    fn takes_refusal(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        let taken = self
            .refused
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        taken.is_ok()
    }

    pub(super) fn set_disconnected(&self, disconnected: bool) {
        self.disconnected.store(disconnected, Ordering::SeqCst);
    }
}

/// The fault of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyFault {
    #[default]
    Ok,
    /// The request never arrives.
    NotSent,
    /// The request is executed, and its reply is lost.
    Lost,
    /// The request is executed, and its reply comes some turns of the scheduler later.
    Late,
}

impl ReplyFault {
    pub(super) const ALL: [Self; 4] = [Self::Ok, Self::NotSent, Self::Lost, Self::Late];
}

/// A store that counts its requests and injects faults into them.
#[derive(Debug)]
struct FaultyStore {
    store: Arc<dyn Store>,
    faults: Arc<InjectedFaults>,
}

#[async_trait]
impl Intercept for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn around<T: Send>(
        &self,
        request: Request,
        reply: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.faults.calls.fetch_add(1, Ordering::SeqCst);
        if request == Request::Enter {
            self.faults.enters.fetch_add(1, Ordering::SeqCst);
        }
        *self.faults.last_call.lock() = Some(Instant::now());
        let fault = std::mem::take(&mut *self.faults.next.lock());
        let refused = || Err(Error::unavailable("injected: the connection broke"));

        tokio::task::yield_now().await;
        let is_disconnected = self.faults.disconnected.load(Ordering::SeqCst);
        if fault == ReplyFault::NotSent || is_disconnected || self.faults.takes_refusal() {
            return refused();
        }
        let reply = reply.await;

        let turns = if fault == ReplyFault::Late { 5 } else { 1 };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        if fault == ReplyFault::Lost {
            return refused();
        }
        reply
    }
}
