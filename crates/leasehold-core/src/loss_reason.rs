//! Why a lock was lost.

use std::fmt;

use crate::Error;

/// Why a guard no longer holds, although its holder did not release it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, LossReason, stores::Memory};
/// # let store = Memory::new();
/// # let guard = Locks::from_store(store.clone(), "memory:")?.mutex("nightly").acquire().await?;
/// # store.revoke("nightly");
/// match guard.lost().await {
///     LossReason::Revoked => println!("an operator broke the lock"),
///     reason => println!("{reason}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The store no longer has the claim: a client broke the lock, or the store lost its data.
    Revoked,
    /// No renewal got a reply within the lease, or within a shorter crash grace or session.
    RenewalTimedOut,
    /// The lease, which was not renewed, has ended.
    LeaseExpired,
    /// The time that `max_hold` allows has passed.
    MaxHoldExceeded,
    /// This process was forked from the one that holds the lock, and that one still holds it.
    Forked,
}

/// The status of a hold's renewal.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::open("memory:").await?;
/// use leasehold::RenewalStatus;
/// let guard = locks.mutex("nightly").acquire().await?;
/// assert_eq!(guard.renewal(), RenewalStatus::OnTime);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenewalStatus {
    /// The last renewal got a reply, or none was due yet.
    OnTime,
    /// The last renewal got no reply; the client retries until the lease may have ended.
    Late,
    /// The client sends no renewals: the hold was acquired without renewal, or has ended.
    Off,
}

impl LossReason {
    /// Returns the stable name of the reason: the value of `error.type` in spans, and a label of
    /// metrics.
    ///
    /// ```
    /// assert_eq!(leasehold::LossReason::Revoked.as_str(), "revoked");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::RenewalTimedOut => "renewal_timed_out",
            Self::LeaseExpired => "lease_expired",
            Self::MaxHoldExceeded => "max_hold_exceeded",
            Self::Forked => "forked",
        }
    }

    pub(crate) fn error(self) -> Error {
        Error::lost(format!("the lock was lost: {self}"))
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => {
                "the store no longer has the claim: a client broke the lock, or the store lost its \
                 data"
            }
            Self::RenewalTimedOut => {
                "the store confirmed no renewal in time, and may grant the lock to another client"
            }
            Self::LeaseExpired => "its lease, which was not renewed, has ended",
            Self::MaxHoldExceeded => "the time that max_hold allows has passed",
            Self::Forked => {
                "this process was forked from the one that acquired it, and only that one holds it"
            }
        })
    }
}

/// So that `?` returns it from the code that waits for a loss.
impl std::error::Error for LossReason {}
