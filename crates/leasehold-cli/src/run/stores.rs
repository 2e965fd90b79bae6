//! The store of a run, and the second one of `--also-store`.

use leasehold::{Error, Guarantees, Locks, Result};
use tokio::time::timeout;

use super::nested::{self, Enclosing};
use super::retry::Retry;
use super::signals::Signals;
use super::waiting::Acquired;
use crate::commands::{Origin, Run, Store};
use crate::guards::{AlsoHeld, Guards};
use crate::locking::{self, LEAVE_TIMEOUT, Request, SlotNumbers};

/// The stores that must all grant the locks of a run.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) main: Locks,
    also: Option<Locks>,
}

impl Stores {
    pub(crate) async fn open(args: &Run) -> Result<Self> {
        let main = args.store.open().await?;

        let also = match args.also_store.clone() {
            None => None,
            Some(url) => {
                let origin = Origin::AlsoStore;
                Some(Store { url, origin }.open().await?)
            }
        };
        if let Some(also) = &also
            && nested::is_same_store(main.url(), also.url())
        {
            return Err(same_store());
        }
        Ok(Self { main, also })
    }

    /// The guarantees of the store that `--also-store` names.
    pub(crate) fn also_guarantees(&self) -> Option<Guarantees> {
        self.also.as_ref().map(Locks::guarantees)
    }

    /// Returns the holds of `names` in the main store that this process runs under.
    ///
    /// Fails if only one of the stores has such holds.
    pub(crate) async fn enclosing(&self, names: &[String]) -> Result<Option<Vec<Enclosing>>> {
        let outer = nested::enclosing_all(&self.main, names).await?;
        let Some(also) = &self.also else {
            return Ok(outer);
        };

        let also_outer = nested::enclosing_all(also, names).await?;
        if also_outer.is_some() != outer.is_some() {
            return Err(enclosed_in_one_store());
        }
        Ok(outer)
    }

    /// Acquires all names in both stores, or none in either store.
    ///
    /// Every run acquires the stores in the byte order of their URLs. So no two runs each hold a
    /// lock in one store and wait for the other store.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queues and releases granted locks.
    pub(crate) async fn acquire(
        &self,
        request: Request<'_>,
        retry: &mut Retry,
        signals: &mut Signals,
    ) -> anyhow::Result<Acquired> {
        let Some(also) = &self.also else {
            return locking::acquire(&self.main, request, retry, signals).await;
        };

        let request = Request {
            slot_numbers: SlotNumbers::Unneeded,
            ..request
        };
        let also_request = Request {
            origin: Origin::AlsoStore,
            ..request
        };
        let is_main_first = self.main.url() < also.url();
        let ((first_store, first_request), (second_store, second_request)) = if is_main_first {
            ((&self.main, request), (also, also_request))
        } else {
            ((also, also_request), (&self.main, request))
        };

        loop {
            let acquired = locking::acquire(first_store, first_request, retry, signals).await?;
            let first = match acquired {
                Acquired::Granted(guards) => guards,
                refused => return Ok(refused),
            };

            let acquired = acquire_second(&first, second_store, second_request, retry, signals);
            let second = match acquired.await {
                Ok(Acquired::Granted(guards)) => guards,
                refused => {
                    give_back(first).await;
                    return refused;
                }
            };

            // The first hold may have been lost during the wait for the second one.
            if first.check().is_err() || second.check().is_err() {
                give_back(first).await;
                give_back(second).await;
                continue;
            }
            // The tokens of the hold are those of the main store.
            let (mut hold, other) = if is_main_first {
                (first, second)
            } else {
                (second, first)
            };
            hold.also = Some(AlsoHeld {
                url: also.url().to_owned(),
                guards: other.into_names(),
            });
            return Ok(Acquired::Granted(hold));
        }
    }
}

/// Acquires the second store, unless it is the first one under another URL.
async fn acquire_second(
    first: &Guards,
    store: &Locks,
    request: Request<'_>,
    retry: &mut Retry,
    signals: &mut Signals,
) -> anyhow::Result<Acquired> {
    let own = first.first();
    let inspected = retry.until_available(|| store.inspect(own.name()));
    let lock_state = tokio::select! {
        biased;
        lock_state = inspected => lock_state?,
        signal = signals.next_to_end() => return Ok(Acquired::Interrupted(signal?)),
    };
    let mut holders = lock_state.holders();
    if holders.any(|entry| entry.id == own.claim_id()) {
        return Err(same_store().into());
    }
    locking::acquire(store, request, retry, signals).await
}

/// Releases unused holds. If a store does not reply, it frees them when they expire.
async fn give_back(guards: Guards) {
    // Nothing ran under these holds, so neither an error nor a loss matters.
    drop(timeout(LEAVE_TIMEOUT, guards.release()).await);
}

fn same_store() -> Error {
    let error = Error::invalid("--store and --also-store are the same store");

    // A run inside a run with --also-store inherits the variable.
    let variable = nested::ALSO_STORE;
    if std::env::var_os(variable).is_some() {
        return error.help(format!(
            "give the old store and the new one, or unset {variable}"
        ));
    }
    error.help("give the old store and the new one")
}

fn enclosed_in_one_store() -> Error {
    Error::invalid("an outer run holds this lock in only one of the two stores")
        .help("give the outer run the same --store and --also-store")
}
