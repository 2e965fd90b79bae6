//! Observing a lock without waiting for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::time::{sleep, timeout};

use crate::engine::{Engine, LONGEST_REPLY};
use crate::lock_state::comparable;
use crate::runtime::background::on_background;
use crate::store::Subscription;
use crate::{LockState, Locks, Name, Result};

/// Observes the state of a lock; [`Locks::observe`] creates it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::open("memory:").await?;
/// let mut observer = locks.observe("nightly").await?;
/// assert_eq!(observer.next().await?.holders().count(), 0);
///
/// let _guard = locks.mutex("nightly").acquire().await?;
/// assert_eq!(observer.next().await?.holders().count(), 1);
/// # Ok(()) }
/// ```
pub struct Observer {
    engine: Arc<Engine>,
    name: Name,
    /// `None` if the store pushes no changes.
    subscription: Option<Box<dyn Subscription>>,
    /// The last state that was returned, without the servers.
    seen: Option<LockState>,
    /// Whether the lock may have changed since it was last inspected.
    is_stale: bool,
}

impl Locks {
    /// Observes the holders and waiters of a name.
    ///
    /// The file store, a Redis server, ZooKeeper and the store in memory push changes. If a store
    /// does not, or does not let this client subscribe, the observer polls four times a second.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let mut observer = locks.observe("nightly").await?;
    /// let lock_state = observer.next().await?;
    /// println!("{} hold it, {} wait", lock_state.holders().count(), lock_state.waiters().count());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_unavailable`](crate::Error::is_unavailable) if the store cannot be reached, and
    /// [`is_invalid`](crate::Error::is_invalid) for an invalid name.
    ///
    /// # Cancel safety
    /// It only reads; dropping it has no effect.
    pub async fn observe(&self, name: impl AsRef<str>) -> Result<Observer> {
        let name = name.as_ref();
        let parsed = Name::parse(name);
        let name = parsed.map_err(|error| error.during("observe", self.url(), Some(name)))?;
        let engine = Arc::clone(&self.engine);
        let subscription = on_background(engine.calls.subscribe(&name)).await?;

        Ok(Observer {
            engine,
            name,
            subscription,
            seen: None,
            is_stale: true,
        })
    }
}

impl Observer {
    /// Waits until the state differs from the one returned last, and returns it.
    ///
    /// The first call returns the state at once. Of several changes in a short time, only the last
    /// one may be returned. The remaining time of a vote or a lease is not
    /// a change.
    ///
    /// A store does not push the end of a lease. The observer notices it within a second.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let mut observer = locks.observe("nightly").await?;
    /// observer.next().await?; // the present state
    ///
    /// let guard = locks.mutex("nightly").acquire().await?;
    /// assert_eq!(observer.next().await?.holders().count(), 1);
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Locks::inspect`], and [`is_unavailable`](crate::Error::is_unavailable) after 10 seconds
    /// without a reply. The next call observes again.
    ///
    /// # Cancel safety
    /// If the future is dropped, no change is lost: the next call returns it.
    pub async fn next(&mut self) -> Result<LockState> {
        on_background(self.next_state()).await
    }

    /// Returns the states as a stream, which does not end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// use futures_util::StreamExt;
    /// let states = locks.observe("nightly").await?.into_stream();
    /// let free = states.filter(|state| std::future::ready(state.as_ref().is_ok_and(|state| {
    ///     state.holders().next().is_none()
    /// })));
    /// assert!(Box::pin(free).next().await.is_some());
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = Result<LockState>> + Send {
        stream::unfold(self, |mut observer| async move {
            let state = observer.next().await;
            Some((state, observer))
        })
    }

    /// Returns whether the store pushes changes to this observer. Otherwise the observer polls.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// assert!(locks.observe("nightly").await?.is_pushed());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_pushed(&self) -> bool {
        self.subscription.is_some()
    }

    async fn next_state(&mut self) -> Result<LockState> {
        let calls = &self.engine.calls;
        calls.check_not_forked("observe", Some(&self.name))?;

        loop {
            if !self.is_stale {
                self.wait_for_change().await;
                self.is_stale = true;
            }

            let lock_state = self.engine.calls.inspect(&self.name, LONGEST_REPLY).await?;
            self.is_stale = false;

            let comparable = comparable(&lock_state);
            if self.seen.as_ref() != Some(&comparable) {
                self.seen = Some(comparable);
                return Ok(lock_state);
            }
        }
    }

    /// Waits until the lock may have changed.
    async fn wait_for_change(&mut self) {
        let Some(subscription) = &mut self.subscription else {
            return sleep(POLL_INTERVAL).await;
        };

        // Without a reply of the subscription, the observer inspects the lock from time to time.
        let changed = timeout(INSPECT_INTERVAL, subscription.changed()).await;
        if let Ok(Err(error)) = changed {
            tracing::debug!(name = %self.name, %error, "the subscription failed; polling");
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Shows the name and the store.
impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("name", &self.name.as_str())
            .field("store", &self.engine.calls.url())
            .finish_non_exhaustive()
    }
}

/// How often an observer polls a store that pushes no changes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often an observer inspects a lock of which the store has pushed no change.
const INSPECT_INTERVAL: Duration = Duration::from_secs(1);
