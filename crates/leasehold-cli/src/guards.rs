//! The guards of all locks that the command holds at once.

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold::stores::FileGuardExt;
use leasehold::{Guard, LossReason, MultiGuard, RenewalStatus, Result};
use tokio::time::timeout;

use crate::exit::print_error;
use crate::format::{Escaped, whole_unit};

/// How long to wait for the reply to a release. The calling script must not wait for a store that
/// no longer replies.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The guards of one or more names.
///
/// They count as one hold, which is lost when any of them is lost.
#[derive(Debug)]
pub(crate) struct Guards {
    /// In the order of the arguments.
    names: MultiGuard,
    pub(crate) also: Option<AlsoHeld>,
}

/// The guards of the same names in the store of `--also-store`.
#[derive(Debug)]
pub(crate) struct AlsoHeld {
    /// The URL without its password.
    pub(crate) url: String,
    pub(crate) guards: Vec<Guard>,
}

impl Guards {
    /// Creates a hold of `names`, which must not be empty.
    pub(crate) fn new(names: Vec<Guard>) -> Self {
        Self {
            names: MultiGuard::new(names),
            also: None,
        }
    }

    /// Returns the guards of the names, to add them to another hold.
    pub(crate) fn into_names(self) -> Vec<Guard> {
        self.names.into_guards()
    }

    /// The guard of the first name.
    pub(crate) fn first(&self) -> &Guard {
        &self.names()[0]
    }

    /// The guards of the names, in the order of the arguments.
    pub(crate) fn names(&self) -> &[Guard] {
        self.names.guards()
    }

    fn all(&self) -> impl Iterator<Item = &Guard> {
        let also = self.also.iter().flat_map(|also| &also.guards);
        self.names().iter().chain(also)
    }

    /// The guard that was lost or will be lost first.
    fn weakest(&self) -> &Guard {
        self.all()
            .min_by_key(|guard| guard.remaining())
            .expect("a hold has a first name")
    }

    /// Returns the name that was lost or will be lost first.
    pub(crate) fn name(&self) -> &str {
        self.weakest().name()
    }

    /// Returns the second store's URL if the weakest hold is in that store.
    pub(crate) fn also_url_of_weakest(&self) -> Option<&str> {
        let weakest = self.weakest();
        let also = self.also.as_ref()?;
        let is_there = also.guards.iter().any(|guard| std::ptr::eq(guard, weakest));
        is_there.then_some(also.url.as_str())
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.all().find_map(Guard::loss)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.all().try_for_each(Guard::check)
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.weakest().remaining()
    }

    pub(crate) fn renewal(&self) -> RenewalStatus {
        self.weakest().renewal()
    }

    /// Returns why the store of the guard that is lost first confirms no renewal.
    pub(crate) fn outage_reason(&self) -> String {
        let error = self.weakest().outage_error();
        error.map_or("no reply".to_owned(), |error| error.reason().to_owned())
    }

    /// Waits until no more than `margin` of any guard remains, or one is lost.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub(crate) async fn until_remaining(&self, margin: Duration) {
        let waits = self
            .all()
            .map(|guard| Box::pin(guard.until_remaining(margin)));
        select_all(waits).await;
    }

    /// Waits until one of the guards is lost.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub(crate) async fn lost(&self) -> LossReason {
        let losses = self.all().map(|guard| Box::pin(guard.lost()));
        select_all(losses).await.0
    }

    /// Returns the descriptors that keep all locks held while any process has them open.
    pub(crate) fn inheritable_fds(&self) -> Result<Vec<OwnedFd>> {
        let fds: Result<Vec<_>> = self.all().map(FileGuardExt::inheritable_fds).collect();
        Ok(fds?.into_iter().flatten().collect())
    }

    /// Releases all locks and prints an error of the release. Fails only if a lock was lost before.
    ///
    /// If the store does not reply, leasehold waits at most [`RELEASE_TIMEOUT`].
    pub(crate) async fn release_and_report(self, loss: LossReport) -> Result<()> {
        let name = Escaped(self.name()).to_string();
        let print = |text: &dyn Display| {
            if loss == LossReport::Due {
                print_error(text);
            }
        };

        match timeout(RELEASE_TIMEOUT, self.release()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                print(&error);
                if error.is_lost() { Err(error) } else { Ok(()) }
            }
            Err(_elapsed) => {
                print(&format_args!(
                    "cannot release {name}: the store sent no reply within {}; it frees the lock \
                     when it detects the end of leasehold, or when the lease ends",
                    whole_unit(RELEASE_TIMEOUT)
                ));
                Ok(())
            }
        }
    }

    /// Releases all locks. Returns the first error, and prefers a loss to any other error.
    pub(crate) async fn release(self) -> Result<()> {
        let mut guards = self.names.into_guards();
        guards.extend(self.also.into_iter().flat_map(|also| also.guards));
        MultiGuard::new(guards).release().await
    }
}

/// Whether a loss still has to be printed. This includes the outage that leads to the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossReport {
    Due,
    Printed,
}
