//! Why a lock was lost.

use std::fmt;

use crate::Error;

/// Why a guard no longer holds, although nobody released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The store no longer has the claim: somebody broke the lock, or the store forgot it.
    Gone,
    /// The store confirmed no renewal for the lease, or for the crash grace or session where that is shorter.
    Unrenewed,
    /// A fixed lease has run its time.
    LeaseOver,
    /// The lock was held for as long as `max_hold` allows.
    HeldTooLong,
}

/// How the renewal of a held lease goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The last question was answered, or none was due yet.
    OnTime,
    /// The last question was not answered; it is asked again until the lease could have ended.
    Late,
    /// Nothing is renewed: the lease is fixed, or the hold is over.
    Off,
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
            Self::Unrenewed => "the store confirmed no renewal in time, and may give the lock to another",
            Self::LeaseOver => "its fixed lease has run its time",
            Self::HeldTooLong => "it was held for as long as max_hold allows",
        })
    }
}
