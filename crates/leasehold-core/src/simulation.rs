//! Items that the simulated world of the lab needs. They are not a part of the API.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{self, Validity};
use crate::{ClaimId, Guard};

pub use crate::runtime::clock::BootInstant;
pub use crate::runtime::simulation::{BackgroundTask, Connection, Scope, World, enter};

/// The validity of a guard, read without an effect on the guard.
///
/// [`Guard::check`] records a loss when it reads the clock. A checker that called it would hide a
/// loss that the library itself did not notice.
#[derive(Clone, Debug)]
pub struct Probe {
    validity: Arc<Validity>,
}

impl Probe {
    /// Creates the probe of a guard. It outlives the guard.
    #[must_use]
    pub fn of(guard: &Guard) -> Self {
        Self {
            validity: guard.hold().validity(),
        }
    }

    /// Returns the id of the claim.
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.validity.claim.id
    }

    /// Returns until when the guard is valid; 0 after a recorded end.
    #[must_use]
    pub fn expires_at(&self) -> BootInstant {
        self.validity.expires_at()
    }
}

/// Returns for how long a client relies on a lease, from before its request.
#[must_use]
pub fn safe_duration(lease: Duration) -> Duration {
    engine::safe_duration(lease)
}
