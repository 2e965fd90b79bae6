//! What a store guarantees.

use std::time::Duration;

/// What a store guarantees. GUARANTEES.md names the test behind each guarantee.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let guarantees = leasehold::open("memory:").await?.guarantees();
/// assert!(guarantees.fifo && guarantees.tokens && guarantees.rwlock);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a guarantee of its own, and no two make a state"
)]
#[non_exhaustive]
pub struct Guarantees {
    /// Claims are granted in order of arrival, and none overtakes another.
    pub fifo: bool,
    /// Every grant of a name has a larger token than all grants before it.
    pub tokens: bool,
    /// The store has reader-writer locks.
    pub rwlock: bool,
    /// Whether the store has semaphores, and how long it keeps their sizes.
    pub semaphore: SemaphoreSupport,
    /// The store ends a claim whose lease passes without a renewal.
    ///
    /// Without it, only a crash or the holder itself ends a claim.
    pub lease_expiry: bool,
    /// A grant can reserve tokens, so that a hold can be passed inside a process: see
    /// [`Lock::cohort`](crate::Lock::cohort).
    pub cohorts: bool,
    /// When the crash of a holder frees the lock.
    pub crash_release: CrashRelease,
}

/// Creates the guarantees of a store that only excludes.
///
/// Such a store has mutexes only, and guarantees no order, no tokens, no expiry and no cohorts. A
/// store sets the fields of what it adds.
#[must_use]
pub fn guarantees(crash_release: CrashRelease) -> Guarantees {
    Guarantees {
        fifo: false,
        tokens: false,
        rwlock: false,
        semaphore: SemaphoreSupport::Unsupported,
        lease_expiry: false,
        cohorts: false,
        crash_release,
    }
}

/// Whether a store has semaphores, and how long it keeps the number of slots of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SemaphoreSupport {
    /// A claim for a slot is refused as [unsupported](crate::Error::is_unsupported).
    Unsupported,
    /// The first claim of a free name sets the number of slots.
    WhileInUse,
    /// The first claim of a name sets the number of slots forever.
    Permanent,
}

/// When a crashed holder's lock is free again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashRelease {
    /// As soon as the kernel has removed the process.
    Immediate,
    /// After some time without a connection.
    #[non_exhaustive]
    Within {
        /// For how long the holder has had no connection then.
        grace: Duration,
    },
    /// When the lease ends.
    LeaseExpiry,
}

/// Creates the release after `grace` without a connection.
#[must_use]
pub fn released_within(grace: Duration) -> CrashRelease {
    CrashRelease::Within { grace }
}
