//! Observing a hold from another task.

use std::time::Duration;

use futures_util::future::select_all;

use crate::engine::HoldWatch;
use crate::runtime::background::on_background;
use crate::{LossReason, Result};

/// Observes a hold from a task or thread that does not have the guard.
///
/// [`Guard::watch`](crate::Guard::watch) creates it. It does not keep the lock: the guard does.
/// Clones observe the same hold.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let guard = leasehold::open("memory:").await?.mutex("nightly").acquire().await?;
///
/// let watch = guard.watch();
/// let observer = tokio::spawn(async move {
///     if let Some(reason) = watch.lost().await {
///         eprintln!("{reason}"); // stop the work, for example by a CancellationToken
///     }
/// });
///
/// guard.release().await?;
/// observer.await.expect("it ends with the hold");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Watch {
    /// Several for a [`MultiGuard`](crate::MultiGuard).
    holds: Vec<HoldWatch>,
}

impl Watch {
    pub(crate) fn new(holds: Vec<HoldWatch>) -> Self {
        Self { holds }
    }

    /// Waits until the lock is lost, or the guard is released or dropped, which returns `None`.
    ///
    /// So a task that awaits it ends with the hold.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// let ended = tokio::spawn(guard.watch().lost());
    /// guard.release().await?;
    /// assert_eq!(ended.await.expect("it runs"), None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub fn lost(&self) -> impl Future<Output = Option<LossReason>> + Send + use<> {
        let holds = self.holds.clone();
        async move {
            let ends = holds.iter().map(|hold| Box::pin(hold.ended()));
            on_background(select_all(ends)).await;
            // The guard may have been dropped because of the loss of another hold.
            holds.iter().find_map(HoldWatch::loss)
        }
    }

    /// Checks by the clock that the lock is still held, without a request to the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// let watch = guard.watch();
    /// std::thread::spawn(move || watch.check()).join().expect("it runs")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Guard::check`](crate::Guard::check); also after the guard was released or dropped.
    pub fn check(&self) -> Result<()> {
        self.holds.iter().try_for_each(HoldWatch::check)
    }

    /// Returns how long the lock stays held if no further renewal gets a reply.
    ///
    /// It is zero after the end of the hold.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.holds.iter().map(HoldWatch::remaining);
        remaining.min().unwrap_or_default()
    }
}
