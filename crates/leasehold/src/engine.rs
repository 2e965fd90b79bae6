//! What all stores have in common: acquiring, renewing, departing, and the one door through which a store is asked.
//!
//! The engine does no I/O of its own. One background task per engine renews everything that is held or waits.

pub(crate) mod acquire;
#[cfg(test)]
mod bent;
mod call;
mod depart;
mod hold;
#[cfg(test)]
mod lapses;
mod outage;
mod renew;
mod stay;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::clock::Alarm;
use crate::{ClaimId, Error, Result, Store, background};

pub use acquire::hold_from;
pub(crate) use acquire::{Ask, Wait};
pub(crate) use call::Door;
pub(crate) use hold::Hold;
use renew::Renewals;
pub use stay::trusted;

#[derive(Debug)]
pub(crate) struct Engine {
    door: Door,
    renewals: Arc<Renewals>,
    renewing: AbortHandle,
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn Store>, place: &str) -> Result<Arc<Self>> {
        let runtime = background::start()?;
        let door = Door::new(store, place);
        let renewals = Arc::new(Renewals::default());
        let alarm = renewals_alarm(runtime)?;
        let renewing = runtime.spawn(renew::run(door.closing(), Arc::clone(&renewals), alarm)).abort_handle();
        Ok(Arc::new(Self { door, renewals, renewing }))
    }

    /// Ends what this engine itself holds of a claim that is to be broken.
    pub(crate) fn gone(&self, id: ClaimId) {
        self.renewals.gone(id);
    }

    pub(crate) fn door(&self) -> &Door {
        &self.door
    }
}

/// Made here, where its want can be told: a renewal task without one would keep no lock.
fn renewals_alarm(runtime: &Handle) -> Result<Alarm> {
    let _entered = runtime.enter();
    Alarm::new().map_err(|error| Error::unavailable("there is no timer left to renew by").caused_by(error))
}

/// Guards keep their engine, so nothing is held any more when this runs. The store closes with the last departure.
impl Drop for Engine {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}
