//! What all stores have in common: acquiring, renewing, departing, and the one door through which a store is asked.
//!
//! The engine does no I/O of its own. One background task per engine renews everything that is held or waits.

pub(crate) mod acquire;
mod calls;
mod depart;
#[cfg(test)]
mod expired_in_queue;
mod hold;
mod outage;
mod renew;
mod validity;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::runtime::background;
use crate::runtime::clock::BootTimer;
use crate::{ClaimId, Error, Result, Store};

pub use acquire::hold_from;
pub(crate) use acquire::{AcquireOptions, WaitLimit};
pub(crate) use calls::StoreCalls;
pub(crate) use hold::Hold;
use renew::Renewals;
pub use validity::safe_duration;

#[derive(Debug)]
pub(crate) struct Engine {
    calls: StoreCalls,
    renewals: Arc<Renewals>,
    renewal_task: AbortHandle,
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn Store>, url: &str) -> Result<Arc<Self>> {
        let runtime = background::start()?;
        let calls = StoreCalls::new(store, url);
        let renewals = Arc::new(Renewals::default());
        let alarm = renewal_timer(runtime)?;
        let renewing = runtime
            .spawn(renew::run(calls.downgrade(), Arc::clone(&renewals), alarm))
            .abort_handle();
        Ok(Arc::new(Self {
            calls,
            renewals,
            renewal_task: renewing,
        }))
    }

    /// Ends what this engine itself holds of a claim that is to be broken.
    pub(crate) fn revoke(&self, id: ClaimId) {
        self.renewals.revoke(id);
    }

    pub(crate) fn calls(&self) -> &StoreCalls {
        &self.calls
    }
}

/// Made here, where its want can be told: a renewal task without one would keep no lock.
fn renewal_timer(runtime: &Handle) -> Result<BootTimer> {
    let _entered = runtime.enter();
    BootTimer::new()
        .map_err(|error| Error::unavailable("there is no timer left to renew by").caused_by(error))
}

/// Guards keep their engine, so nothing is held any more when this runs. The store closes with the last departure.
impl Drop for Engine {
    fn drop(&mut self) {
        self.renewal_task.abort();
    }
}
