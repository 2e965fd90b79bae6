//! Why a lock was lost.

use std::fmt;

use crate::Error;

/// Why a guard no longer holds, although nobody released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The store no longer has the claim: somebody broke the lock, or the store forgot it.
    Revoked,
    /// The store confirmed no renewal for the lease, or for the crash grace or session where that is shorter.
    RenewalTimedOut,
    /// A fixed lease has run its time.
    LeaseExpired,
    /// The lock was held for as long as `max_hold` allows.
    MaxHoldExceeded,
}

/// How the renewal of a held lease goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenewalStatus {
    /// The last question was answered, or none was due yet.
    OnTime,
    /// The last question was not answered; it is asked again until the lease could have ended.
    Late,
    /// Nothing is renewed: the lease is fixed, or the hold is over.
    Off,
}

impl LossReason {
    pub(crate) fn error(self) -> Error {
        Error::lost(format!("the lock was lost: {self}"))
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revoked => {
                "the store no longer has the claim; somebody broke the lock, or the store lost it"
            }
            Self::RenewalTimedOut => {
                "the store confirmed no renewal in time, and may give the lock to another"
            }
            Self::LeaseExpired => "its fixed lease has run its time",
            Self::MaxHoldExceeded => "it was held for as long as max_hold allows",
        })
    }
}
