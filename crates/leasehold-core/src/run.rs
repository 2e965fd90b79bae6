//! A lock around one piece of work: acquire, work, release.

use std::error::Error as StdError;
use std::fmt;

use crate::{Error, Guard, Lock, Result};

impl Lock {
    /// Acquires the lock, runs `work` while the lock is held, and releases it.
    ///
    /// It waits as [`acquire`](Self::acquire) does, drops the work as soon as the lock is lost, as
    /// [`Guard::while_held`] does, and waits for the reply to the release.
    ///
    /// ```
    /// # async fn charge(order: u32, token: leasehold::Token) -> Result<u32, String> { Ok(order) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold::RunError;
    /// let lock = leasehold::open("memory:").await?.mutex("orders/42");
    ///
    /// let charged = lock.run(async |guard| charge(42, guard.token()).await).await;
    /// match charged {
    ///     Ok(receipt) => println!("charged: {receipt}"),
    ///     Err(RunError::Work(declined)) => println!("declined: {declined}"),
    ///     Err(RunError::Acquire(error)) => println!("not begun: {error}"),
    ///     Err(RunError::Release(error)) => println!("charged, and still locked: {error}"),
    ///     Err(error) => println!("perhaps charged twice: {error}"), // RunError::Lost
    /// }
    /// # assert!(lock.try_acquire().await?.is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RunError`] says which of the steps failed.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is the work. The claim leaves the queue, or the lock is released
    /// in the background.
    #[doc(alias = "with_lock")]
    pub fn run<T, E, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, RunError<E>>> + use<T, E, W>
    where
        W: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        let acquiring = self.acquire();
        async move {
            let guard = acquiring.await.map_err(RunError::Acquire)?;
            let worked = guard.while_held(work(&guard)).await;
            let worked = worked.map_err(RunError::Lost)?;
            ended(worked, guard.release().await)
        }
    }
}

/// Returns the result of work under a lock that was held until its end, and then released.
pub(crate) fn ended<T, E>(worked: Result<T, E>, released: Result<()>) -> Result<T, RunError<E>> {
    let value = worked.map_err(RunError::Work)?;
    match released {
        Ok(()) => Ok(value),
        Err(error) if error.is_lost() => Err(RunError::Lost(error)),
        Err(error) => Err(RunError::Release(error)),
    }
}

/// Which step of [`Lock::run`] failed.
///
/// It is an error for `?`, with the text of the error in it. To keep a value of the work even if the
/// release fails, let the work write it to a variable outside.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::RunError;
/// let lock = leasehold::open("memory:").await?.mutex("orders/42");
///
/// let mut receipt = None;
/// let run = lock.run(async |_guard| {
///     receipt = Some(17);
///     Ok::<_, std::io::Error>(())
/// });
/// match run.await {
///     Err(RunError::Release(error)) => println!("charged, and still locked: {error}"),
///     ran => ran?,
/// }
/// assert_eq!(receipt, Some(17));
/// # Ok(()) }
/// ```
// After each of the four a caller does something else, which `Result<Result<T, E>, Error>` would mix.
// The value of work whose release failed is not in the error, because that needs a second type.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The lock was not acquired, and the work did not begin.
    Acquire(Error),
    /// The lock was lost before it was released. The work may have been dropped at any await, and
    /// may have overlapped with that of another holder.
    Lost(Error),
    /// The work returned this error while the lock was held.
    Work(E),
    /// The work is completed, and no other claim held the lock meanwhile, but the release got no
    /// reply. The background thread repeats it while the store is open.
    Release(Error),
}

/// The text is that of the error within.
impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) | Self::Lost(error) | Self::Release(error) => error.fmt(f),
            Self::Work(error) => error.fmt(f),
        }
    }
}

/// The work's error needs no source of its own, so that `anyhow::Error` can be one.
impl<E: fmt::Debug + fmt::Display> StdError for RunError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Acquire(error) | Self::Lost(error) | Self::Release(error) => error.source(),
            Self::Work(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::task::yield_now;

    use super::*;
    use crate::stores::Memory;
    use crate::{Locks, Store, blocking};

    type Ran<E = &'static str> = Result<u8, RunError<E>>;

    /// A release without a reply is repeated for this long.
    const SHORT: Duration = Duration::from_secs(1);

    fn open() -> (Memory, Locks) {
        let store = Memory::new();
        let locks = Locks::from_store(store.clone(), "memory:").expect("it starts");
        (store, locks)
    }

    async fn is_free(locks: &Locks) -> bool {
        let lock_state = locks.inspect("a").await.expect("the store replies");
        lock_state.entries.is_empty()
    }

    #[tokio::test]
    async fn completed_work_returns_its_value_and_the_lock_is_free() {
        let (_, locks) = open();
        let run = locks.mutex("a").run(async |guard| {
            yield_now().await;
            guard.check()?;
            Ok::<_, Error>(guard.token())
        });
        let spawned = tokio::spawn(run).await.expect("it ends");

        assert!(spawned.is_ok(), "{spawned:?}");
        assert!(is_free(&locks).await);
    }

    #[tokio::test]
    async fn failed_work_is_told_apart_and_the_lock_is_free() {
        let (store, locks) = open();
        let lock = locks.mutex("a").lease(SHORT);
        let ran: Ran = lock.run(async |_| Err("declined")).await;
        assert!(matches!(ran, Err(RunError::Work("declined"))), "{ran:?}");
        assert!(is_free(&locks).await);

        let lock = blocking::Lock::from(lock);
        let ran: Ran = lock.run(|_| Err("declined"));
        assert!(matches!(ran, Err(RunError::Work("declined"))), "{ran:?}");
        assert!(is_free(&locks).await);

        // An outage hides the work's error from no caller.
        let ran: Ran = lock.run(|_| {
            store.fail();
            Err("declined")
        });
        assert!(matches!(ran, Err(RunError::Work("declined"))), "{ran:?}");
    }

    #[tokio::test]
    async fn lost_lock_drops_the_work() {
        struct Dropped(Arc<AtomicBool>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let (store, locks) = open();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let work = Dropped(Arc::clone(&is_dropped));
        let ran: Ran = locks
            .mutex("a")
            .run(async |_| {
                let _work = work;
                store.revoke("a");
                pending().await
            })
            .await;
        let Err(RunError::Lost(error)) = &ran else {
            panic!("{ran:?}");
        };
        assert!(error.is_lost());
        assert!(is_dropped.load(Ordering::Relaxed));
    }

    /// A thread cannot be stopped, and its work may succeed or fail because of the loss.
    #[test]
    fn loss_counts_before_the_result_of_a_thread() {
        let (store, locks) = open();
        let lock = blocking::Lock::from(locks.mutex("a"));
        for result in [Ok(1), Err("declined")] {
            let ran: Ran = lock.run(|_| {
                store.revoke("a");
                result
            });
            assert!(matches!(ran, Err(RunError::Lost(_))), "{ran:?}");
        }
    }

    #[tokio::test]
    async fn hold_that_is_gone_at_the_release_is_lost() {
        let (store, locks) = open();
        let ran: Ran = locks
            .mutex("a")
            .run(async |guard| {
                // The client has no time to observe that its entry is gone.
                store.leave(guard.hold().claim()).await.expect("it is gone");
                Ok(1)
            })
            .await;
        assert!(matches!(ran, Err(RunError::Lost(_))), "{ran:?}");
    }

    #[tokio::test]
    async fn failed_acquire_and_failed_release_are_told_apart() {
        let (store, locks) = open();
        let lock = locks.mutex("a").lease(SHORT);
        let ran: Ran = lock
            .run(async |_| {
                store.fail();
                Ok(1)
            })
            .await;
        let Err(RunError::Release(error)) = &ran else {
            panic!("{ran:?}");
        };
        assert!(error.is_unavailable());

        let mut has_begun = false;
        let ran: Ran = lock
            .run(async |_| {
                has_begun = true;
                Ok(1)
            })
            .await;
        assert!(matches!(ran, Err(RunError::Acquire(_))), "{ran:?}");

        let lock = blocking::Lock::from(lock);
        let ran: Ran = lock.run(|_| {
            has_begun = true;
            Ok(1)
        });
        assert!(matches!(ran, Err(RunError::Acquire(_))), "{ran:?}");
        assert!(!has_begun);

        store.recover();
        let ran: Ran = lock.run(|_| {
            store.fail();
            Ok(1)
        });
        assert!(matches!(ran, Err(RunError::Release(_))), "{ran:?}");
    }

    #[tokio::test]
    async fn dropped_run_leaves_the_lock_free() {
        let (_, locks) = open();
        let lock = locks.mutex("a");
        let mut running = Box::pin(lock.run(async |_| pending::<Result<(), Error>>().await));
        tokio::select! {
            _ = &mut running => unreachable!("the work does not end"),
            () = async {
                while is_free(&locks).await {
                    yield_now().await;
                }
            } => {}
        }

        drop(running);
        lock.acquire()
            .await
            .expect("it is free")
            .release()
            .await
            .expect("released");
    }

    /// `?` takes it to the errors of other crates.
    #[test]
    fn error_has_the_text_of_the_error_within() {
        let error: Box<dyn StdError + Send + Sync> = RunError::Work("declined").into();
        assert_eq!(error.to_string(), "declined");

        let within = Error::unavailable("down").caused_by(std::io::Error::other("reset"));
        let error = RunError::<&str>::Acquire(within);
        assert_eq!(error.to_string(), "down");
        assert!(error.source().is_some());
    }
}
