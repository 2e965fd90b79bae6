//! What all stores have in common: acquiring, renewing, departing, and calling the store.
//!
//! The engine does no I/O of its own. One background task per engine renews all claims, held or
//! waiting.

pub(crate) mod acquire;
mod calls;
pub(crate) mod cohort;
mod depart;
mod events;
#[cfg(test)]
mod expired_in_queue_tests;
pub(crate) mod first;
mod hold;
mod limits;
#[cfg(test)]
mod no_reply;
pub(crate) mod numbers;
mod renew;
mod validity;
mod wait;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::runtime::clock::BootTimer;
use crate::runtime::{background, fork};
use crate::{ClaimId, Error, Result, Store};

pub(crate) use calls::{REPLY_TIMEOUT as LONGEST_REPLY, StoreCalls, StoreId};
use cohort::Cohorts;
use first::FirstEntry;
pub(crate) use hold::{Hold, HoldWatch};
pub(crate) use limits::{AcquireOptions, WaitLimit};
pub(crate) use numbers::{NUMBERED_MAX, NumberedHold};
use renew::Renewals;
#[allow(unused_imports, reason = "only the simulation reads it")]
pub(crate) use validity::Validity;
pub use validity::{hold_from, safe_duration};

/// One open store, with the claims that this process has in it.
pub(crate) struct Engine {
    pub(crate) calls: StoreCalls,
    renewals: Arc<Renewals>,
    cohorts: Arc<Cohorts>,
    /// The claim that was entered while the store was opened, until its acquire begins.
    first: Mutex<Option<FirstEntry>>,
    renewal_task: AbortHandle,
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn Store>, url: &str) -> Result<Arc<Self>> {
        background::start()?;
        let calls = StoreCalls::new(store, url);
        let renewals = Arc::new(Renewals::default());
        let client: Weak<Renewals> = Arc::downgrade(&renewals);
        calls.add_client(client);

        let timer = Arc::new(renewal_timer()?);
        let renewed = (calls.downgrade(), Arc::clone(&renewals));
        let has_run = AtomicBool::new(false);
        let renewal_task = background::spawn_restarting(move || {
            let (calls, renewals) = renewed.clone();
            if has_run.swap(true, Relaxed) {
                // A panic has ended the rounds that were under way.
                renewals.make_all_due();
            }
            renew::run(calls, renewals, Arc::clone(&timer))
        });

        Ok(Arc::new(Self {
            calls,
            renewals,
            cohorts: Arc::default(),
            first: Mutex::default(),
            renewal_task,
        }))
    }

    /// Ends this process's hold, if any, of a claim that is about to be broken.
    pub(crate) fn revoke(&self, id: ClaimId) {
        self.renewals.revoke(id);
    }

    /// Returns how many acquires of cohorts wait for a name in this process.
    pub(crate) fn local_waiters(&self, name: &str) -> usize {
        self.cohorts.waiters(name)
    }
}

/// Shows the store only: the claims of other locks do not belong in the text of a guard.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&self.calls.url()).finish()
    }
}

/// Every guard keeps its engine alive, so no hold is left when this runs.
///
/// The last departure closes the store.
impl Drop for Engine {
    fn drop(&mut self) {
        if fork::is_forked() {
            // A store that is dropped closes its connections or removes its files, which are those
            // of the parent.
            return std::mem::forget(self.calls.store());
        }
        self.renewal_task.abort();
    }
}

/// Creates the timer of the renewal task. It is created when the store is opened, so that the
/// caller receives the error: without a timer no lock can be renewed.
fn renewal_timer() -> Result<BootTimer> {
    let _entered = background::current().map(Handle::enter);
    BootTimer::new()
        .map_err(|error| Error::exhausted(error, "the timer for renewals cannot be created"))
}

#[cfg(test)]
mod tests {
    use leasehold_conformance::support::eventually;

    use crate::Locks;
    use crate::stores::Memory;

    /// A closed store occupies neither a task nor a timer.
    #[tokio::test]
    async fn closed_store_renews_nothing() {
        let locks = Locks::from_store(Memory::new(), "memory:").expect("it starts");
        let held = locks.mutex("a").acquire().await.expect("it is free");
        let renewals = locks.engine.renewal_task.clone();
        drop(locks);
        assert!(!renewals.is_finished(), "a guard keeps the store open");

        drop(held);
        eventually("the task ends", || async { renewals.is_finished() }).await;
    }
}
