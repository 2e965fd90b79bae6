//! Acquiring a claim in the store for all waiters of a cohort.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use super::Cohort;
use crate::engine::acquire::attempt_until_granted;
use crate::engine::events::AcquireEvents;
use crate::engine::limits::Outage;
use crate::engine::{AcquireOptions, Engine, Hold, WaitLimit};
use crate::runtime::background;
use crate::{Error, Result};

/// The acquisition of a claim. It ends with a hold or an error for the waiters, or when no acquire
/// waits any more.
///
/// The acquire that has begun it polls it in place, which is fast. If that acquire is dropped or
/// granted, and others wait, the background thread continues it.
pub(super) struct Acquisition {
    cohort: Arc<Cohort>,
    /// `None` once it is complete.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Acquisition {
    /// Begins an acquisition, if acquires wait and nothing under way grants them the lock.
    pub(super) fn begin_if_due(
        cohort: &Arc<Cohort>,
        engine: &Arc<Engine>,
        options: &AcquireOptions,
    ) -> Option<Self> {
        let mut state = cohort.state.lock();
        if !state.needs_acquisition() {
            return None;
        }
        let has_replied = Arc::<AtomicBool>::default();
        state.acquiring = Some(Arc::clone(&has_replied));
        let acquiring = Acquiring {
            cohort: Arc::clone(cohort),
            joined: state.joined,
            has_replied,
        };
        drop(state);

        let future = acquiring.run(Arc::clone(engine), options.for_store());
        Some(Self {
            cohort: Arc::clone(cohort),
            future: Some(Box::pin(future)),
        })
    }
}

impl Future for Acquisition {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A future that panics is not put back: nobody may poll it again.
        let mut future = self
            .future
            .take()
            .expect("a completed acquisition is not polled again");

        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else {
            return;
        };
        if !self.cohort.state.lock().waiters.is_empty() {
            background::spawn(future);
        }
    }
}

/// Marks the cohort as acquiring while it exists.
struct Acquiring {
    cohort: Arc<Cohort>,
    /// How many acquires had joined when it began.
    joined: u64,
    /// Whether the store has replied to the request to enter.
    has_replied: Arc<AtomicBool>,
}

impl Acquiring {
    async fn run(self, engine: Arc<Engine>, options: AcquireOptions) {
        let events = AcquireEvents::unrecorded(&engine.calls, &options.name);
        let outage = Outage::shown_by(Arc::clone(&self.has_replied));
        let acquiring =
            attempt_until_granted(&engine, &options, WaitLimit::Forever, &events, outage);
        let acquired = tokio::select! {
            biased;
            acquired = acquiring => acquired,
            () = self.cohort.unused() => return,
        };

        match acquired {
            Ok(Ok(hold)) => self.cohort.deliver(hold),
            Ok(Err(_)) => {}
            Err(error) => self.cohort.fail(self.joined, &error),
        }
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        let mut state = self.cohort.state.lock();
        state.acquiring = None;
        if let Some(departing) = state.departing.take() {
            // The claim leaves by a departure of its own, which has begun.
            departing.end_with_later();
        }
        if state.needs_acquisition() {
            self.cohort.acquisition_due.notify_one();
        }
    }
}

impl Cohort {
    /// Waits until no acquire waits.
    async fn unused(&self) {
        loop {
            self.unused.notified().await;
            if self.state.lock().waiters.is_empty() {
                return;
            }
        }
    }

    /// Gives the hold to the first waiter. Without a waiter, the claim leaves.
    fn deliver(self: &Arc<Self>, hold: Hold) {
        let mut state = self.state.lock();
        let Some(waiter) = state.waiters.pop_front() else {
            drop(state);
            drop(hold);
            return;
        };

        let Some(first) = self.first_hold(&mut state, &hold, waiter.max_hold) else {
            // It was lost before its first use. The waiters acquire again.
            state.waiters.push_front(waiter);
            drop(state);
            drop(hold);
            return;
        };
        hold.forget();
        let undelivered = waiter.grant.send(Ok(first));
        drop(state);
        // A hold without a waiter is passed on.
        drop(undelivered);
    }

    /// Ends the wait of the acquires that had joined when the acquisition began.
    ///
    /// The others did not wait in all of the outage. They acquire again.
    fn fail(&self, joined: u64, error: &Error) {
        let mut state = self.state.lock();
        let later = state
            .waiters
            .partition_point(|waiter| waiter.number < joined);
        let remaining = state.waiters.split_off(later);
        let waiters = std::mem::replace(&mut state.waiters, remaining);
        drop(state);

        for waiter in waiters {
            let failed: Result<Hold> = Err(error.clone());
            // The acquire may have been dropped.
            let _ = waiter.grant.send(failed);
        }
    }
}
