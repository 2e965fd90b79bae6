//! Many readers or one writer.

use crate::{Lock, Locks, Share};

/// A lock that many readers or one writer hold at a time.
///
/// Readers and writers wait in one queue, in order of arrival. A reader that arrives after a
/// waiting writer waits behind it, so neither side starves. A writer's guard can
/// [downgrade](crate::Guard::downgrade) to a reader's. A reader cannot upgrade: two readers that
/// tried would wait for each other forever.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let config = leasehold::open("memory:").await?.rwlock("config");
/// let (one, two) = (config.shared().acquire().await?, config.shared().acquire().await?);
/// assert!(config.exclusive().try_acquire().await?.is_err());
/// # drop((one, two)); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    locks: Locks,
    name: String,
}

impl RwLock {
    pub(crate) fn new(locks: Locks, name: &str) -> Self {
        Self {
            locks,
            name: name.to_owned(),
        }
    }

    /// Returns the name as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the lock of a reader.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let reader = locks.rwlock("config").shared().acquire().await?;
    /// # drop(reader);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shared(&self) -> Lock {
        self.locks.lock_of(&self.name, Ok(Share::READER))
    }

    /// Returns the lock of a writer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::open("memory:").await?;
    /// let writer = locks.rwlock("config").exclusive().acquire().await?;
    /// writer.downgrade().await?; // to a reader, without a gap
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn exclusive(&self) -> Lock {
        self.locks.lock_of(&self.name, Ok(Share::WRITER))
    }
}
