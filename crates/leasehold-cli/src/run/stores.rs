//! The store of a run, and the second one of `--also-store`.

use leasehold::{Error, Locks, Result};

use super::nested::{self, Enclosing};
use crate::commands::{Origin, Run, Store};

/// The stores that must all grant the locks of a run.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) main: Locks,
    pub(crate) also: Option<Locks>,
}

impl Stores {
    pub(crate) async fn open(args: &Run) -> Result<Self> {
        let main = if args.enters_at_start() {
            let lock = |store: &Locks| args.lock.lock(store, &args.names()[0], &args.label());
            args.store.open_entering(lock, args.lock.wait).await?
        } else {
            args.store.open().await?
        };

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
}

/// The error of two URLs that lead to one store, where a run would wait for itself.
pub(crate) fn same_store() -> Error {
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
