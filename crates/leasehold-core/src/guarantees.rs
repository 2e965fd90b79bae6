//! What a store guarantees.

use std::time::Duration;

use crate::{Error, Result};

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
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::SemaphoreSupport;
/// assert_eq!(locks.guarantees().semaphore, SemaphoreSupport::WhileInUse);
/// # Ok(()) }
/// ```
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
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::CrashRelease;
/// match locks.guarantees().crash_release {
///     CrashRelease::Immediate => println!("free at once"),
///     CrashRelease::Within { grace, .. } => println!("free after {grace:?}"),
///     _ => println!("free when the lease ends"),
/// }
/// # Ok(()) }
/// ```
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

/// What a program needs of its store; [`Locks::require`](crate::Locks::require) checks it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::Need;
/// locks.require([Need::Tokens, Need::RwLocks])?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Fencing tokens, which [elections](crate::Election) need too.
    Tokens,
    /// Semaphores: [`Locks::semaphore`](crate::Locks::semaphore).
    Semaphores,
    /// Reader-writer locks: [`Locks::rwlock`](crate::Locks::rwlock).
    RwLocks,
    /// Holds that are passed on in a process: [`Lock::cohort`](crate::Lock::cohort).
    Cohorts,
    /// Grants in order of arrival.
    Fifo,
}

impl Need {
    /// Checks that a store has it.
    pub(crate) fn check(self, guarantees: &Guarantees) -> Result<()> {
        let (has, missing, help) = match self {
            Self::Tokens => (
                guarantees.tokens,
                "this store has no tokens, which elections and fencing need",
                "use another store, or a dialect with tokens",
            ),
            Self::Semaphores => (
                guarantees.semaphore != SemaphoreSupport::Unsupported,
                "this store has no semaphores",
                "use a mutex, or a store that has semaphores",
            ),
            Self::RwLocks => (
                guarantees.rwlock,
                "this store has no reader-writer locks",
                "use a mutex, or a store that has readers",
            ),
            Self::Cohorts => (
                guarantees.cohorts,
                "this store cannot reserve tokens, so a hold cannot be passed on",
                "acquire without a cohort, or use a store that has cohorts",
            ),
            Self::Fifo => (
                guarantees.fifo,
                "this store does not grant claims in order of arrival",
                "use a store with a queue",
            ),
        };
        if has {
            return Ok(());
        }
        Err(Error::unsupported(missing).help(help))
    }
}
