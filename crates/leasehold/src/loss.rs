//! Why a lock was lost.

use std::fmt;

use crate::Error;

/// Why a guard no longer holds, although nobody released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The store no longer has the claim: somebody broke the lock, or the store forgot it.
    Gone,
    /// No renewal was answered before the lease could have ended.
    Unrenewed,
    /// A fixed lease has run its time.
    LeaseOver,
    /// The lock was held for as long as `max_hold` allows.
    HeldTooLong,
}

impl Loss {
    pub(crate) fn error(self) -> Error {
        Error::lost(format!("the lock was lost: {self}"))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the store no longer has the claim; somebody broke the lock, or the store lost it",
            Self::Unrenewed => "no renewal was answered before the lease could have ended",
            Self::LeaseOver => "its fixed lease has run its time",
            Self::HeldTooLong => "it was held for as long as max_hold allows",
        })
    }
}
