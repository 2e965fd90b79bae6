//! The guard of several locks.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::guard::{all_released, run_until};
use crate::{Guard, LossReason, RenewalStatus, Result, Token, Watch};

/// Several granted locks, held together until they are released, dropped or lost.
///
/// If one of them is lost, all count as lost. The others stay held until this guard is released or
/// dropped, so that no other client works on a part of what they protect.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
/// guard.while_held(async { println!("transfer") }).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// Joins guards that count as one hold from now on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use leasehold::MultiGuard;
    /// let one = locks.mutex("account/1").acquire().await?;
    /// let two = locks.mutex("account/2").acquire().await?;
    /// MultiGuard::new(vec![one, two]).check()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// If `guards` is empty.
    pub fn new(guards: Vec<Guard>) -> Self {
        assert!(!guards.is_empty(), "a hold has at least one lock");
        Self { guards }
    }

    /// Returns the guard of each lock, in the order in which the locks were stated.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Returns the guards, which are independent of each other from now on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let both = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// for guard in both.into_guards() {
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// Returns the token of each lock, in the order in which the caller named the locks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// for (name, token) in ["account/1", "account/2"].iter().zip(guard.tokens()) {
    ///     println!("{name}: {token}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        self.guards.iter().map(Guard::token).collect()
    }

    /// Returns the guard that was lost, or will be lost first without further renewals.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// println!("{} is lost first", guard.weakest().name());
    /// # Ok(()) }
    /// ```
    pub fn weakest(&self) -> &Guard {
        self.guards
            .iter()
            .min_by_key(|guard| guard.remaining())
            .expect("a hold has at least one lock")
    }

    /// Checks by the clock that all locks are still held; see [`Guard::check`].
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if one of the locks was lost.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Returns whether all locks are still held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns why a lock was lost; `None` while all are held.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.guards.iter().find_map(Guard::loss)
    }

    /// Returns how long all locks stay held if no further renewal gets a reply.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.weakest().remaining()
    }

    /// Returns the status of the renewal of the [weakest](Self::weakest) lock.
    #[must_use]
    pub fn renewal(&self) -> RenewalStatus {
        self.weakest().renewal()
    }

    /// Returns a handle that observes all holds from another task or thread.
    pub fn watch(&self) -> Watch {
        Watch::new(self.guards.iter().flat_map(Guard::hold_watches).collect())
    }

    /// Waits until one of the locks is lost.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn lost(&self) -> LossReason {
        let losses = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        select_all(losses).await.0
    }

    /// Waits until no more than `margin` of one lock remains, or one is lost.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn until_remaining(&self, margin: Duration) {
        let waits = self
            .guards
            .iter()
            .map(|guard| Box::pin(guard.until_remaining(margin)));
        select_all(waits).await;
    }

    /// Runs `work` while all locks are held, and drops it as soon as one of them is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let guard = locks.multi_lock(["account/1", "account/2"]).acquire().await?;
    /// let moved = guard.while_held(async { 100 }).await?;
    /// assert_eq!(moved, 100);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost) if a lock was lost before the work completed, or at the same
    /// moment.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. The locks stay held.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.check()?;
        match run_until(self.lost(), work).await {
            Some(done) => self.check().map(|()| done),
            None => Err(self.check().expect_err("one of the locks was lost")),
        }
    }

    /// Releases all locks at the same time, and waits for the replies.
    ///
    /// # Errors
    /// As [`Guard::release`]. If several releases fail, it returns the error of a loss first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the releases continue in the background.
    pub async fn release(self) -> Result<()> {
        all_released(join_all(self.guards.into_iter().map(Guard::release)).await)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;
    use crate::stores::Memory;
    use crate::{Error, ErrorKind, Locks};

    /// Shows G-39.
    #[tokio::test]
    async fn loss_of_one_lock_is_the_loss_of_all() {
        let locks = Locks::from_store(Memory::new(), "memory:").expect("it starts");
        let guard = locks.multi_lock(["a", "b"]).acquire().await;
        let guard = guard.expect("both are free");
        assert_eq!(guard.loss(), None);
        assert!(guard.remaining() > Duration::ZERO);
        let mut ending = Box::pin(guard.until_remaining(Duration::ZERO));
        assert!(poll!(&mut ending).is_pending());

        let token = guard.guards()[1].token();
        let broken = locks.break_hold("b", token).await.expect("it replies");
        assert!(broken.is_some());
        ending.await;
        assert_eq!(guard.loss(), Some(LossReason::Revoked));
        assert_eq!(guard.remaining(), Duration::ZERO);

        let lost = guard.watch().check().expect_err("it was broken");
        let text = lost.to_string();
        assert!(text.contains("memory:") && text.contains('b'), "{text}");
        assert!(guard.release().await.is_err_and(|error| error.is_lost()));
    }

    #[test]
    fn loss_matters_more_than_a_missing_reply() {
        let outcome = |kind: ErrorKind| Err(Error::for_test(kind));
        let unavailable = || outcome(ErrorKind::Unavailable);
        let lost = || outcome(ErrorKind::Lost);
        let worst = |releases| all_released(releases).map_err(|error| error.kind());

        assert_eq!(worst([Ok(()), Ok(())]), Ok(()));
        assert_eq!(worst([Ok(()), unavailable()]), Err(ErrorKind::Unavailable));
        assert_eq!(worst([unavailable(), lost()]), Err(ErrorKind::Lost));
        assert_eq!(worst([lost(), unavailable()]), Err(ErrorKind::Lost));
    }
}
